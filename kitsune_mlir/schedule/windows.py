"""The matrix of a convolution's windows, in numpy."""

from __future__ import annotations

import numpy as np

from kitsune_mlir.planning.windows import Windows


def matrix(images: np.ndarray, windows: Windows, pitches: tuple[int, ...]) -> np.ndarray:
    """[images, windows, columns], of several blocks [images, windows, blocks, columns]. `pitches` are the elements from
    one to the next along the images' dimensions, as `windows` takes them."""
    shape = (len(images), *windows.sizes, windows.channels)
    strides = [pitch * images.itemsize for pitch in pitches]
    taken = np.lib.stride_tricks.as_strided(np.ascontiguousarray(images), shape, strides, writeable=False)
    found = np.zeros((len(images), windows.count, windows.blocks, windows.columns), images.dtype)
    own = windows.channels // windows.blocks
    begins = np.stack(np.unravel_index(np.arange(windows.count), windows.places), 1)
    begins = begins * windows.strides - np.array(windows.low)
    for number, offset in enumerate(windows.elements()):
        at = begins + offset
        inside = ((at >= 0) & (at < windows.sizes)).all(1)
        seen = taken[(slice(None), *at[inside].T)].reshape(len(images), -1, windows.blocks, own)
        found[:, inside, :, number * windows.depth : number * windows.depth + own] = seen
    return found if windows.blocks > 1 else found[:, :, 0]
