"""Tensors of the caller as arrays the runners take, and back. numpy only; torch is used when the caller did.

bfloat16, which numpy has not, is held as its bits in uint16 inside; at the border it is torch.bfloat16 for
callers with torch tensors, else ml_dtypes.bfloat16 when that package is installed, else the bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kitsune_mlir.errors import UserError
from kitsune_mlir.program import TensorSpec


def storage(spec: TensorSpec) -> np.dtype:
    """The numpy type that runners see: MLIR has no unsigned integers, so u8 is i8 there."""
    return np.dtype(np.int8) if spec.dtype == "u8" else spec.numpy_dtype


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """`value` as a C-contiguous array of `storage(spec)`, sharing memory where it can.

    Raises UserError, naming the input, for a wrong type, dtype or shape.
    """
    if is_torch(value):
        array, dtype = _from_torch(value)
    elif isinstance(value, np.ndarray | np.generic):
        array, dtype = np.asarray(value), str(value.dtype)
        if dtype == "bfloat16":
            array = array.view(np.uint16)
    else:
        raise UserError(f"input '{spec.name}' must be a numpy array or torch tensor, found {type(value).__name__}")
    wanted = spec.numpy_dtype
    if array.dtype != wanted or (dtype == "bfloat16") > (spec.dtype == "bf16"):
        raise UserError(f"input '{spec.name}' must be {spec.dtype}, found {dtype}")
    check_shape(array.shape, spec)
    return (array if array.flags.c_contiguous else array.copy()).view(storage(spec))


def check_shape(shape: tuple[int, ...], spec: TensorSpec) -> None:
    """Raises UserError when `shape` is not one of `spec`'s."""
    fits = len(shape) == len(spec.shape) and all(b in (None, a) for a, b in zip(shape, spec.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in spec.shape)
        raise UserError(f"input '{spec.name}' must have the shape [{wanted}], found {list(shape)}")


def from_array(array: np.ndarray, spec: TensorSpec, like_torch: bool) -> Any:
    """An output as the caller wants it: a torch tensor, or a numpy array."""
    array = array.view(spec.numpy_dtype)
    if like_torch:
        torch = sys.modules["torch"]
        if spec.dtype == "bf16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if spec.dtype == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            return array
        return array.view(ml_dtypes.bfloat16)
    return array


def write_back(array: np.ndarray, spec: TensorSpec, into: Any) -> None:
    """Gives an input that the model changes in place its new contents."""
    if is_torch(into):
        into.copy_(from_array(array, spec, like_torch=True))
    else:
        np.copyto(into, from_array(array, spec, like_torch=False).view(into.dtype))


def _from_torch(value: Any) -> tuple[np.ndarray, str]:
    torch = sys.modules["torch"]
    value = value.detach().cpu().contiguous()
    dtype = str(value.dtype).removeprefix("torch.")
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(np.uint16), dtype
    return value.numpy(), dtype
