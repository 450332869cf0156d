"""Tensor maps, which tell TMA where the elements of a tensor lie (PTX ISA, "Tensor-maps"; CUDA driver API,
"Tensor Map Object Management").

A kernel takes its maps by value, as one struct. The driver encodes a map; its functions are called by
address, because they want aligned memory to write to, and objects of cuda-bindings are not aligned.
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
_MAX_WINDOWS, _MAX_STEP = 1024, 8
_CORNER_BITS = {3: 16, 4: 8, 5: 5}  # by rank
_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "tf32": 4}
_ELEMENTS = {"bf16": "BFLOAT16", "f16": "FLOAT16", "f32": "FLOAT32", "tf32": "TFLOAT32"}
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
_EncodeWindows = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # where to write
    *(_Enum, _U32, ctypes.c_void_p),  # element type, rank, base address
    *(ctypes.POINTER(_U64), ctypes.POINTER(_U64)),  # dims, strides
    *(ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)),  # lower and upper corner
    *(_U32, _U32, ctypes.POINTER(_U32)),  # channels, windows, element strides
    *(_Enum, _Enum, _Enum, _Enum),  # interleave, swizzle, promotion to L2, fill
)
_Replace = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)  # map, base address


class TensorMaps:
    """The maps of one kernel. Each is described by a dict: "tensor", its number among the kernel's tensors, of which
    the workspace is the last, and "offset", the bytes from there to its first element (0 when absent);
    "element", "bf16", "f16", "f32", or "tf32" of f32 that is rounded to tf32 on its way to shared memory; "dims" in
    elements, the fastest first, null for a size that is open until the call, which "open" says for each the
    number of among the call's (all the first when absent); "strides" of all dims but the first, in bytes,
    times those of the dims before that are null, the first dim's rounded up to a multiple of "line" elements (1 when
    absent); "box" in elements;
    "swizzle", 0, 32, 64 or 128 bytes.

    A map of windows on images (PTX ISA, Im2col mode) has channels as its first dim and images as its last; "lower" and
    "upper", for each dim between, where windows begin, relative to the image's first and last element; "steps", how far
    they are apart; and a box of channels and windows.

    Raises InternalError for a map that no GPU can use.
    """

    def __init__(self, driver: Any, maps: Sequence[dict[str, Any]]):
        for entry in maps:
            _check(entry)
        self._maps = maps
        self._functions = _Functions(driver)

    def bind(self, sizes: Sequence[int]) -> BoundMaps:
        """The maps for calls of these open sizes; of tensors without elements there are none, out of which nothing is
        copied then."""
        return BoundMaps(self._functions, self._maps, sizes)


def dims_at(entry: dict[str, Any], sizes: Sequence[int]) -> list[int]:
    """The dims of a map, in elements, for calls of these open sizes."""
    numbers = iter(entry.get("open", [0] * len(entry["dims"])))
    return [sizes[next(numbers)] if size is None else size for size in entry["dims"]]


def strides_at(entry: dict[str, Any], dims: Sequence[int]) -> list[int]:
    """The strides of a map, in bytes, for calls for which its dims are these."""
    line, times, found = entry.get("line", 1), 1, []
    for number, stride in enumerate(entry["strides"]):
        if entry["dims"][number] is None:
            times *= dims[number] if number else -(-dims[number] // line) * line
        found.append(stride * times)
    return found


class _Functions:
    """The driver's functions for maps, called by address."""

    def __init__(self, driver: Any):
        def address(name: bytes) -> int:
            return int(cuda_driver.call(driver, "cuGetProcAddress", name, 12000, 0))

        self.driver = driver
        self.encode = _Encode(address(b"cuTensorMapEncodeTiled"))
        self.encode_windows = _EncodeWindows(address(b"cuTensorMapEncodeIm2col"))
        self.replace = _Replace(address(b"cuTensorMapReplaceAddress"))


class BoundMaps:
    """Encoded maps, one after another, at `address` on the host. One thread at a time may use them."""

    def __init__(self, functions: _Functions, maps: Sequence[dict[str, Any]], sizes: Sequence[int]):
        self._functions, self._driver = functions, functions.driver
        self._memory = (ctypes.c_uint8 * (NBYTES * len(maps) + ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address = start + -start % ALIGNMENT
        self._tensors = [entry["tensor"] for entry in maps]
        dims = [dims_at(entry, sizes) for entry in maps]
        self._used = [all(own) for own in dims]
        self._of_windows = ["steps" in entry for entry in maps]
        self._offsets = [entry.get("offset", 0) for entry in maps]
        self._bases: list[int | None] = [None] * len(maps)  # of the tensors that the maps are encoded for
        # What the driver is given before a base address, and after it.
        self._before = [(self.address + NBYTES * i, *self._kind(entry)) for i, entry in enumerate(maps)]
        self._after = [self._layout(entry, [max(size, 1) for size in own]) for entry, own in zip(maps, dims)]

    def _kind(self, entry: dict[str, Any]) -> tuple[int, int]:
        return self._enum("DataType", "DATA_TYPE", _ELEMENTS[entry["element"]]), len(entry["dims"])

    def _layout(self, entry: dict[str, Any], dims: list[int]) -> tuple[Any, ...]:
        rank = len(dims)
        box: tuple[Any, ...] = ((_U32 * rank)(*entry["box"]), (_U32 * rank)(*[1] * rank))
        if "steps" in entry:
            corners = ((ctypes.c_int * (rank - 2))(*entry[name]) for name in ("lower", "upper"))
            box = (*corners, *entry["box"], (_U32 * rank)(1, *entry["steps"], 1))
        return (
            *((_U64 * rank)(*dims), (_U64 * rank)(*strides_at(entry, dims))),
            *box,
            self._enum("Interleave", "INTERLEAVE", "NONE"),
            self._enum("Swizzle", "SWIZZLE", _SWIZZLES[entry["swizzle"]]),
            self._enum("L2promotion", "L2_PROMOTION", "L2_256B"),
            self._enum("FloatOOBfill", "FLOAT_OOB_FILL", "NONE"),  # what a box reads outside the tensor is zero
        )

    def point(self, pointers: Sequence[int]) -> None:
        """Sets right the maps of tensors that are not where they were. `pointers` are those of all the kernel's
        tensors and of the workspace. Raises InternalError for a tensor that begins where TMA cannot read, or what the
        driver says."""
        for i, tensor in enumerate(self._tensors):
            base = pointers[tensor] + self._offsets[i]
            if base != self._bases[i] and self._used[i]:
                self._point(i, base)

    def _point(self, i: int, base: int) -> None:
        if base % _GRANULE:
            raise InternalError(
                f"tensor {self._tensors[i]} of a tensor map begins at {base:#x}, not at a multiple of 16"
            )
        encoded, self._bases[i] = self._bases[i] is not None, None  # until the driver has agreed
        if encoded:
            name, status = "cuTensorMapReplaceAddress", self._functions.replace(self._before[i][0], base)
        else:
            of_windows = self._of_windows[i]
            name = "cuTensorMapEncodeIm2col" if of_windows else "cuTensorMapEncodeTiled"
            encode = self._functions.encode_windows if of_windows else self._functions.encode
            status = encode(*self._before[i], base, *self._after[i])
        cuda_driver.check(self._driver, name, status)
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
    if "steps" in entry:
        _check_windows(entry, rank)
    if not 1 <= rank <= _MAX_RANK or len(strides) != rank - 1 or len(box) != (2 if "steps" in entry else rank):
        raise InternalError(
            f"a tensor map has 1 to {_MAX_RANK} dims, one stride less, and a box of as many, "
            f"found {dims}, {strides}, {box}"
        )
    if not all(size is None or 1 <= size <= _MAX_DIM for size in dims):
        raise InternalError(f"a tensor map's dims must be 1 to {_MAX_DIM}, found {dims}")
    if not all(0 < stride < _MAX_STRIDE and stride * entry.get("line", 1) % _GRANULE == 0 for stride in strides):
        raise InternalError(f"a tensor map's strides must be multiples of {_GRANULE} bytes, found {strides}")
    row = box[0] * _BYTES[entry["element"]]
    most = [_MAX_BOX, _MAX_WINDOWS] if "steps" in entry else [_MAX_BOX] * rank
    if not all(1 <= size <= limit for size, limit in zip(box, most)) or row % _GRANULE or (swizzle and row > swizzle):
        widest = f"at most {swizzle}" if swizzle else "a multiple of 16"
        raise InternalError(
            f"a tensor map's box must be 1 to {_MAX_BOX} elements a side and {widest} bytes wide, found {box} of "
            f"{entry['element']}"
        )


def _check_windows(entry: dict[str, Any], rank: int) -> None:
    """Raises InternalError for corners that windows cannot have."""
    corners = [entry.get("lower", []), entry.get("upper", [])]
    most = 1 << _CORNER_BITS.get(rank, 1) - 1
    if rank not in _CORNER_BITS or any(len(numbers) != rank - 2 for numbers in (*corners, entry["steps"])):
        raise InternalError(f"a tensor map of windows has 3 to 5 dims, and corners and steps of 2 less, found {entry}")
    if not all(-most <= x < most for corner in corners for x in corner):
        raise InternalError(
            f"a tensor map of windows of rank {rank} has corners within {most} elements, found {corners}"
        )
    if not all(1 <= step <= _MAX_STEP for step in entry["steps"]):
        raise InternalError(f"a tensor map of windows has steps from 1 to {_MAX_STEP}, found {entry['steps']}")
