"""A result on a GPU, which other libraries take over without a copy. Standard library and numpy only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# DLPack's type codes (dlpack.h) by numpy's kinds: integer, float, boolean; and bfloat.
_CODES = {"i": 0, "f": 2, "b": 6}
_BFLOAT = 4
_KDL_CUDA = 2
_NUMPY = {"bf16": np.dtype(np.uint16), "i1": np.dtype(np.bool_)}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

# Exported tensors, kept until the consumer calls the deleter: by the address of their DLManagedTensor.
_exported: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _release(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def numpy_dtype(dtype: str) -> np.dtype:
    """The numpy type that holds an element type; bf16 is held as its bits, in uint16."""
    return _NUMPY.get(dtype) or np.dtype(dtype.replace("f", "float").replace("i", "int"))


@dataclass
class DeviceTensor:
    """A tensor on a GPU, in memory that `memory` owns; ready when the work on `stream` so far is done. `strides` are in
    elements, None for a dense one."""

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    memory: Any
    device: Any
    stream: int
    strides: tuple[int, ...] | None = None
    check: Callable[[], None] | None = None  # raises what the run reported, once it is done

    def numpy(self) -> np.ndarray:
        """A dense copy on the host (bf16: the bits); waits for the stream. Raises UserError where the run that made it
        met a row number outside of its table."""
        array = self._read()
        if self.check is not None:
            self.check()
        return array

    def _read(self) -> np.ndarray:
        dtype = numpy_dtype(self.dtype)
        array = np.empty(self.shape, dtype)
        if not array.size:
            return array
        if self.strides is None:
            self.device.read(array, self.pointer, self.stream)
            return array
        span = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        flat = np.empty(span, dtype)
        self.device.read(flat, self.pointer, self.stream)
        steps = [stride * dtype.itemsize for stride in self.strides]
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, self.shape, steps))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bf16":
            raise AttributeError("the CUDA array interface has no bfloat16: use __dlpack__")
        return {
            "shape": self.shape,
            "strides": self.strides and tuple(n * numpy_dtype(self.dtype).itemsize for n in self.strides),
            "typestr": numpy_dtype(self.dtype).str,
            "data": (self.pointer, False),
            "version": 3,
            "stream": self.stream or 1,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _KDL_CUDA, self.device.number

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """A capsule; the consumer's stream waits for this tensor's."""
        if stream is not None and stream != -1 and stream != self.stream:
            self.device.order(before=self.stream, after=stream)
        dtype = numpy_dtype(self.dtype)
        code = _BFLOAT if self.dtype == "bf16" else _CODES[dtype.kind]
        shape = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        strides = None if self.strides is None else (ctypes.c_int64 * max(1, len(self.shape)))(*self.strides)
        tensor = _DLTensor(
            self.pointer, _KDL_CUDA, self.device.number, len(self.shape), code, dtype.itemsize * 8, 1, shape, strides, 0
        )
        managed = _DLManagedTensor(tensor, None, _release)
        address = ctypes.addressof(managed)
        _exported[address] = managed, shape, strides, self.memory
        return _new_capsule(address, b"dltensor", None)
