"""Tensor maps, which tell TMA where the elements of a tensor lie (PTX ISA, "Tensor-maps"; CUDA driver API,
"Tensor Map Object Management").

A kernel takes its maps by value, as one struct. The driver encodes a map; its function is called by
address, because it wants aligned memory to write to, and objects of cuda-bindings are not aligned.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from kitsune_mlir.errors import InternalError

from . import cuda_driver

NBYTES = 128  # of an encoded map
ALIGNMENT = 128  # of encoded maps on the host, in bytes: what cuda.h gives the type
ENCODED = 64  # structs to keep
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
        self._ragged = any(size is None for entry in maps for size in entry["dims"])
        self._encoded: dict[tuple[int, ...], _Struct] = {}
        self._lock = threading.Lock()
        address = cuda_driver.call(driver, "cuGetProcAddress", b"cuTensorMapEncodeTiled", 12000, 0)
        self._encode = _Encode(int(address))

    def struct(self, pointers: Sequence[int], rows: int) -> _Struct:
        """The encoded maps, one after another, for tensors at these addresses and a call of `rows` rows. The
        latest are kept, so a caller whose tensors stay in place pays for a look-up."""
        key = (rows if self._ragged else 0, *(pointers[entry["tensor"]] for entry in self._maps))
        with self._lock:
            found = self._encoded.get(key)
            if found is None:
                found = _Struct(len(self._maps))
                for i, (entry, base) in enumerate(zip(self._maps, key[1:], strict=True)):
                    self._write(entry, base, rows, found.address + NBYTES * i)
                while len(self._encoded) >= ENCODED:
                    del self._encoded[next(iter(self._encoded))]
                self._encoded[key] = found
            return found

    def _write(self, entry: dict[str, Any], base: int, rows: int, target: int) -> None:
        """Encodes one map. What a box reads outside the tensor is zero."""
        if base % _GRANULE:
            raise InternalError(
                f"tensor {entry['tensor']} of a tensor map begins at {base:#x}, not at a multiple of 16"
            )
        dims = [rows if size is None else size for size in entry["dims"]]
        rank = len(dims)
        status = self._encode(
            target,
            self._enum("DataType", "DATA_TYPE", _ELEMENTS[entry["element"]]),
            *(rank, base, (_U64 * rank)(*dims), (_U64 * rank)(*entry["strides"])),
            *((_U32 * rank)(*entry["box"]), (_U32 * rank)(*[1] * rank)),
            self._enum("Interleave", "INTERLEAVE", "NONE"),
            self._enum("Swizzle", "SWIZZLE", _SWIZZLES[entry["swizzle"]]),
            self._enum("L2promotion", "L2_PROMOTION", "L2_256B"),
            self._enum("FloatOOBfill", "FLOAT_OOB_FILL", "NONE"),
        )
        cuda_driver.check(self._driver, "cuTensorMapEncodeTiled", status)

    def _enum(self, kind: str, prefix: str, name: str) -> int:
        return int(getattr(getattr(self._driver, f"CUtensorMap{kind}"), f"CU_TENSOR_MAP_{prefix}_{name}"))


class _Struct:
    """Aligned memory for `count` encoded maps, at `address` on the host."""

    def __init__(self, count: int):
        self._memory = (ctypes.c_uint8 * (NBYTES * count + ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address = start + -start % ALIGNMENT


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
