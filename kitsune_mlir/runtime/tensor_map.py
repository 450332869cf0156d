"""Tensor maps, which tell TMA where the elements of a tensor lie (PTX ISA, "Tensor-maps"; CUDA driver API,
"Tensor Map Object Management").

A kernel takes its maps by value, as one struct. The driver encodes a map; its function is called by
address, because it wants aligned memory to write to, and objects of cuda-bindings are not aligned.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from kitsune_mlir.errors import InternalError

from . import cuda_driver

NBYTES = 128  # of an encoded map
ALIGNMENT = 128  # of encoded maps on the host, in bytes: what cuda.h gives the type
_GRANULE = 16  # bytes: base addresses, strides and the box's innermost dimension are multiples
_MAX_RANK, _MAX_BOX, _MAX_STRIDE, _MAX_DIM = 5, 256, 1 << 40, 1 << 32
_BYTES = {"bf16": 2, "f16": 2, "f32": 4}
_ELEMENTS = {"bf16": "BFLOAT16", "f16": "FLOAT16", "f32": "FLOAT32"}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}  # by bytes

_U32, _U64, _Enum = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
_Encode = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # where to write
    *(_Enum, _U32, ctypes.c_void_p),  # element type, rank, base address
    *(ctypes.POINTER(_U64), ctypes.POINTER(_U64)),  # dims, strides
    *(ctypes.POINTER(_U32), ctypes.POINTER(_U32)),  # box, element strides
    *(_Enum, _Enum, _Enum, _Enum),  # interleave, swizzle, promotion to L2, fill
)


class TensorMaps:
    """The maps of one kernel. Each is described by a dict: "tensor", its number among the kernel's tensors;
    "element", "bf16", "f16" or "f32"; "dims" in elements, the fastest first, null for the rows of a call;
    "strides" of all dims but the first, in bytes; "box" in elements; "swizzle", 0, 32, 64 or 128 bytes.

    Raises InternalError for a map that no GPU can use.
    """

    def __init__(self, driver: Any, maps: Sequence[dict[str, Any]]):
        for entry in maps:
            _check(entry)
        self._driver, self._maps = driver, maps
        self._encode = _Encode(int(cuda_driver.call(driver, "cuGetProcAddress", b"cuTensorMapEncodeTiled", 12000, 0)))

    def bind(self, rows: int) -> BoundMaps:
        """The maps for calls of so many rows."""
        return BoundMaps(self._driver, self._encode, self._maps, rows)


class BoundMaps:
    """Encoded maps, one after another, at `address` on the host. One thread at a time may use them."""

    def __init__(self, driver: Any, encode: Any, maps: Sequence[dict[str, Any]], rows: int):
        self._driver, self._encode = driver, encode
        self._memory = (ctypes.c_uint8 * (NBYTES * len(maps) + ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address = start + -start % ALIGNMENT
        self._tensors = [entry["tensor"] for entry in maps]
        self._bases: list[int | None] = [None] * len(maps)  # of the tensors that the maps are encoded for
        # What the driver is given before a base address, and after it.
        self._before = [(self.address + NBYTES * i, *self._kind(entry)) for i, entry in enumerate(maps)]
        self._after = [self._layout(entry, rows) for entry in maps]

    def _kind(self, entry: dict[str, Any]) -> tuple[int, int]:
        return self._enum("DataType", "DATA_TYPE", _ELEMENTS[entry["element"]]), len(entry["dims"])

    def _layout(self, entry: dict[str, Any], rows: int) -> tuple[Any, ...]:
        dims = [rows if size is None else size for size in entry["dims"]]
        rank = len(dims)
        return (
            *((_U64 * rank)(*dims), (_U64 * rank)(*entry["strides"])),
            *((_U32 * rank)(*entry["box"]), (_U32 * rank)(*[1] * rank)),
            self._enum("Interleave", "INTERLEAVE", "NONE"),
            self._enum("Swizzle", "SWIZZLE", _SWIZZLES[entry["swizzle"]]),
            self._enum("L2promotion", "L2_PROMOTION", "L2_256B"),
            self._enum("FloatOOBfill", "FLOAT_OOB_FILL", "NONE"),  # what a box reads outside the tensor is zero
        )

    def point(self, pointers: Sequence[int]) -> None:
        """Encodes anew the maps of tensors that are not where they were. `pointers` are those of all the kernel's
        tensors. Raises InternalError for a tensor that begins where TMA cannot read, or what the driver says."""
        for i, tensor in enumerate(self._tensors):
            base = pointers[tensor]
            if base == self._bases[i]:
                continue
            if base % _GRANULE:
                raise InternalError(f"tensor {tensor} of a tensor map begins at {base:#x}, not at a multiple of 16")
            self._bases[i] = None  # until the driver has agreed
            status = self._encode(*self._before[i], base, *self._after[i])
            cuda_driver.check(self._driver, "cuTensorMapEncodeTiled", status)
            self._bases[i] = base

    def _enum(self, kind: str, prefix: str, name: str) -> int:
        return int(getattr(getattr(self._driver, f"CUtensorMap{kind}"), f"CU_TENSOR_MAP_{prefix}_{name}"))


def _check(entry: dict[str, Any]) -> None:
    """Raises InternalError for a map that TMA cannot use."""
    dims, strides, box, swizzle = entry["dims"], entry["strides"], entry["box"], entry["swizzle"]
    for name, allowed in (("element", _ELEMENTS), ("swizzle", _SWIZZLES)):
        if entry[name] not in allowed:
            raise InternalError(f"a tensor map has no {name} {entry[name]}: {', '.join(map(str, allowed))}")
    rank = len(dims)
    if not 1 <= rank <= _MAX_RANK or len(strides) != rank - 1 or len(box) != rank:
        raise InternalError(
            f"a tensor map has 1 to {_MAX_RANK} dims, one stride less, and a box of as many, "
            f"found {dims}, {strides}, {box}"
        )
    if not all(size is None or 1 <= size <= _MAX_DIM for size in dims):
        raise InternalError(f"a tensor map's dims must be 1 to {_MAX_DIM}, found {dims}")
    if not all(0 < stride < _MAX_STRIDE and stride % _GRANULE == 0 for stride in strides):
        raise InternalError(f"a tensor map's strides must be multiples of {_GRANULE} bytes, found {strides}")
    row = box[0] * _BYTES[entry["element"]]
    if not all(1 <= size <= _MAX_BOX for size in box) or row % _GRANULE or (swizzle and row > swizzle):
        widest = f"at most {swizzle}" if swizzle else "a multiple of 16"
        raise InternalError(
            f"a tensor map's box must be 1 to {_MAX_BOX} elements a side and {widest} bytes wide, found {box} of "
            f"{entry['element']}"
        )
