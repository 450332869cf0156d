"""Runs the CPU target's share of an artifact: numpy arrays in, numpy arrays out."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kitsune_mlir.errors import UnsupportedError, UserError

from . import cpu_features
from .cpu_pipelines import STAGE_PREFIX, Pipelines
from .manifest import ENTRY

# bf16 travels as its bits: numpy has no such type.
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "i1": np.bool_,
          "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}  # fmt: skip


class CpuRunner:
    """A compiled module, loaded. Calls from several threads wait for each other.

    `constants` has one entry for each argument of @main: an array for a weight, None for an input.
    Pipelines run on `threads` threads (None: as placed), or with `deterministic` tile by tile in the calling
    thread; the results are the same but for the order in which sums over rows are taken.
    Raises UnsupportedError when the code is for another processor, UserError when `threads` is below 1.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        files: Mapping[str, bytes],
        constants: Sequence[np.ndarray | None],
        *,
        threads: int | None = None,
        deterministic: bool = False,
    ):
        if lacking := cpu_features.missing(manifest["host"]):
            raise UnsupportedError(
                f"this artifact was compiled for a processor with {', '.join(lacking)}, which this one lacks;"
                " compile the model again on this machine"
            )
        self.arguments, self.results = manifest["arguments"], manifest["results"]
        self.constants = [
            None if constant is None else _checked(constant, spec, f"weight {i}")
            for i, (constant, spec) in enumerate(zip(constants, self.arguments, strict=True))
        ]
        self._one_at_a_time = threading.Lock()  # the scratch space and the queues are shared
        self.checks = manifest["checks"]
        self.scratch = _aligned(manifest["scratch_bytes"])
        if threads is not None and threads < 1:
            raise UserError(f"threads must be at least 1, and {threads} was given")
        self.library = Library(files["main.so"])
        self.entry = self.library.function(manifest["entry"])
        self.entry.restype, self.entry.argtypes = None, [ctypes.c_void_p]
        plans = manifest["pipelines"]
        self.pipelines = Pipelines(self.library, plans, 1 if deterministic else threads or 0) if plans else None
        _runners.add(self)

    def after_fork(self) -> None:
        """Makes the runner usable in a forked child, where a thread that was in a call at that time is no more: it
        holds the lock for ever, and no queue will be emptied."""
        self._one_at_a_time = threading.Lock()
        if self.pipelines:
            self.pipelines.abandon()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One call. Raises UserError when an input's number, dtype or shape is wrong, or an index that it
        holds is out of range; inputs are never written."""
        arrays = self._bind(inputs)
        with self._one_at_a_time:
            return self._run(arrays)

    def _run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if self.pipelines:
            self.pipelines.prepare()
        outs = [
            np.empty(spec["shape"], DTYPES[spec["dtype"]]) if None not in spec["shape"] else None
            for spec in self.results
        ]
        returned = [spec for spec, out in zip(self.results, outs, strict=True) if out is None]
        native = np.zeros(sum(3 + 2 * len(spec["shape"]) for spec in returned), np.int64)
        flags = np.zeros(len(self.checks), np.int32)
        static = (out for out in outs if out is not None)
        written = (*static, *(flags[i, ...] for i in range(len(flags))), self.scratch)
        descriptors = [descriptor(array) for array in (*arrays, *written)]
        if returned:
            descriptors.insert(0, native)
        self._invoke(descriptors)
        if self.pipelines:
            self.pipelines.check()
        made = iter(_take(native, returned))
        if flags.any():
            raise UserError(self.checks[int(flags.argmax())])
        return [next(made) if out is None else out for out in outs]

    def _invoke(self, descriptors: list[np.ndarray]) -> None:
        # The entry wants the address of every argument, and each argument is a descriptor's address. `ctypes.data`
        # is a bare number that keeps nothing alive, so every array has a name here until the call is over.
        addresses = np.array([d.ctypes.data for d in descriptors], np.uintp)
        cells = np.arange(len(addresses), dtype=np.uintp) * addresses.itemsize + addresses.ctypes.data
        self.entry(cells.ctypes.data)

    def _bind(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        wanted = sum(constant is None for constant in self.constants)
        if len(inputs) != wanted:
            raise UserError(f"the model takes {wanted} inputs, and {len(inputs)} were given")
        given = iter(enumerate(inputs))
        arrays = []
        for constant, spec in zip(self.constants, self.arguments, strict=True):
            if constant is None:
                position, array = next(given)
                constant = _checked(array, spec, f"input {position}")
            arrays.append(constant)
        return arrays


class Library:
    """A shared object in memory of this process, unmapped with this object.

    Raises UserError when the system refuses it. `function` gives only what it defines under names of our own: a lookup
    also finds what the libraries that it is linked with define.
    """

    def __init__(self, code: bytes):
        try:
            with tempfile.TemporaryDirectory(prefix="kitsune-") as folder:
                path = Path(folder, "main.so")
                path.write_bytes(code)
                self.handle = ctypes.CDLL(str(path))  # stays mapped after the file is gone
        except OSError as error:
            raise UserError(
                f"the compiled code cannot be loaded ({error}); if the folder for temporary files is full, not writable"
                " or mounted noexec, let TMPDIR name another"
            ) from error
        weakref.finalize(self, ctypes.CDLL(None).dlclose, ctypes.c_void_p(self.handle._handle)).atexit = False

    def function(self, name: str) -> Any:
        """The function of that name, new for each call. Raises UserError when there is none."""
        if name != ENTRY and not name.startswith(STAGE_PREFIX):
            raise UserError(f"the compiled code has no function of ours called '{name}'")
        try:
            return self.handle[name]
        except (AttributeError, ValueError):
            raise UserError(f"the compiled code has no function '{name}': compile the model again") from None


# Runners of this process, for children that are forked while one of them is in a call.
_runners: weakref.WeakSet[CpuRunner] = weakref.WeakSet()


def _after_fork() -> None:
    for runner in list(_runners):
        runner.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def descriptor(array: np.ndarray) -> np.ndarray:
    """MLIR's ranked memref descriptor: allocated and aligned pointer, offset, sizes, strides in elements."""
    address, step = array.ctypes.data, array.itemsize
    return np.array([address, address, 0, *array.shape, *(stride // step for stride in array.strides)], np.int64)


def _aligned(size: int) -> np.ndarray:
    """Bytes that start where any vector may; their pages are first touched by the first call."""
    try:
        room = np.empty(size + 64, np.int8)
    except (MemoryError, ValueError) as error:
        raise UserError(f"there is no memory for the {size} bytes that a call needs") from error
    start = -room.ctypes.data % 64
    return room[start : start + size]


def _checked(array: np.ndarray, spec: Mapping[str, Any], name: str) -> np.ndarray:
    """The array, contiguous. Raises UserError when it is not what the model was compiled for."""
    dtype, shape = np.dtype(DTYPES[spec["dtype"]]), spec["shape"]
    array = np.asarray(array)
    if spec["dtype"] == "i8" and array.dtype == np.uint8:  # MLIR's i8 has no sign
        array = array.view(np.int8)
    if array.dtype != dtype:
        raise UserError(f"{name} must be {spec['dtype']}, and {array.dtype} was given")
    fits = len(array.shape) == len(shape) and all(w is None or w == s for w, s in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = " x ".join("any" if size is None else str(size) for size in shape) or "a scalar"
        raise UserError(f"{name} must be {wanted}, and {' x '.join(map(str, array.shape)) or 'a scalar'} was given")
    return array if array.flags.c_contiguous else array.copy()


def _take(native: np.ndarray, specs: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    """Copies the results that native code allocated into arrays, and frees them."""
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    arrays, at = [], 0
    for spec in specs:
        rank = len(spec["shape"])
        allocated, aligned, offset, *rest = (int(v) for v in native[at : at + 3 + 2 * rank])
        at += 3 + 2 * rank
        dtype, sizes = np.dtype(DTYPES[spec["dtype"]]), rest[:rank]
        out = np.empty(sizes, dtype)
        if out.nbytes:
            ctypes.memmove(out.ctypes.data, aligned + offset * dtype.itemsize, out.nbytes)
        arrays.append(out)
        free(allocated)
    return arrays
