"""Stands in for cuda.bindings.driver and cuda.core's objects: notes down what the launcher asks for."""

from __future__ import annotations

import ctypes
import enum
import sys
import types
from typing import Any

from kitsune_mlir.runtime import tensor_map


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_LAUNCH_FAILED = 719


def _constants(kind: str, **values: int) -> type[enum.IntEnum]:
    return enum.IntEnum(kind, values)


class _Record:
    """Any field can be set."""

    def __init__(self, **fields: Any):
        self.__dict__.update(fields)


class FakeDriver:
    """The calls are in `launches` and `encoded`; a tensor map is 128 times the number of its encoding,
    or of the replacement of its address, which has a base alone."""

    CUresult = Result
    CUfunction_attribute = _constants(
        "Function",
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED=14,
    )
    CUlaunchAttributeID = _constants(
        "Attribute",
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE=2,
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6,
    )
    # The numbers of cuda.h.
    CUtensorMapDataType = _constants(
        "DataType",
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16=6,
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32=7,
        CU_TENSOR_MAP_DATA_TYPE_BFLOAT16=9,
        CU_TENSOR_MAP_DATA_TYPE_TFLOAT32=11,
    )
    CUtensorMapInterleave = _constants("Interleave", CU_TENSOR_MAP_INTERLEAVE_NONE=0)
    CUtensorMapSwizzle = _constants(
        "Swizzle",
        CU_TENSOR_MAP_SWIZZLE_NONE=0,
        CU_TENSOR_MAP_SWIZZLE_32B=1,
        CU_TENSOR_MAP_SWIZZLE_64B=2,
        CU_TENSOR_MAP_SWIZZLE_128B=3,
    )
    CUtensorMapL2promotion = _constants("Promotion", CU_TENSOR_MAP_L2_PROMOTION_L2_256B=3)
    CUtensorMapFloatOOBfill = _constants("Fill", CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)
    CUfunction = CUkernel = CUdevice = CUstream = staticmethod(int)

    def __init__(self) -> None:
        self.launches: list[_Record] = []
        self.encoded: list[_Record] = []
        self.copies: list[tuple[int, int, int, int]] = []
        self.zeroed: list[tuple[int, int, int]] = []  # address, bytes, stream
        self.report: list[int] = []  # words that a copy to the host finds
        self.fails: dict[str, Result] = {}  # by function
        self.clusters = 66
        self.attributes: dict[int, int] = {}  # of the kernel, that were set
        self.parameters = (0, 0)  # structs and slots of a kernel, for reading its parameters
        self._encode = tensor_map._Encode(self._encode_tiled)
        self._encode_im2col = tensor_map._EncodeWindows(self._encode_windows)
        self._replace = tensor_map._Replace(self._replace_address)
        self._latest = 0  # base address of the map written last

    @staticmethod
    def CUlaunchConfig() -> _Record:
        return _Record(attrs=[], numAttrs=0)

    @staticmethod
    def CUlaunchAttribute() -> _Record:
        return _Record(value=_Record(clusterDim=_Record()))

    def cuGetErrorString(self, status: Result) -> tuple[Result, bytes]:
        return Result.CUDA_SUCCESS, status.name.lower().encode()

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> tuple[Result, int, int]:
        assert flags == 0 and version >= 12000
        function = {
            b"cuTensorMapEncodeTiled": self._encode,
            b"cuTensorMapEncodeIm2col": self._encode_im2col,
            b"cuTensorMapReplaceAddress": self._replace,
        }[name]
        return Result.CUDA_SUCCESS, ctypes.cast(function, ctypes.c_void_p).value or 0, 0

    def cuKernelSetAttribute(self, attribute: int, value: int, kernel: int, device: int) -> tuple[Result]:
        self.attributes[int(attribute)] = value
        failed = self.fails.get(f"cuKernelSetAttribute {int(attribute)}", Result.CUDA_SUCCESS)
        return (self.fails.get("cuKernelSetAttribute", failed),)

    def cuOccupancyMaxActiveClusters(self, function: int, config: _Record) -> tuple[Result, int]:
        assert config.attrs[0].value.clusterDim.x > 1
        return Result.CUDA_SUCCESS, self.clusters

    def cuMemsetD8Async(self, pointer: int, value: int, nbytes: int, stream: int) -> tuple[Result]:
        assert value == 0
        self.zeroed.append((pointer, nbytes, stream))
        return (Result.CUDA_SUCCESS,)

    def cuStreamSynchronize(self, stream: int) -> tuple[Result]:
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyDtoH(self, target: int, source: int, nbytes: int) -> tuple[Result]:
        words = (self.report + [0] * (nbytes // 4))[: nbytes // 4]
        ctypes.memmove(target, (ctypes.c_uint32 * len(words))(*words), nbytes)
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> tuple[Result]:
        self.copies.append((target, source, nbytes, stream))
        return (Result.CUDA_SUCCESS,)

    def cuLaunchKernelEx(self, config: _Record, function: int, parameters: int, extra: int) -> tuple[Result]:
        """Reads the parameters now, as the driver does: their memory is the caller's."""
        structs, slots = self.parameters
        addresses = list((ctypes.c_uint64 * (bool(structs) + slots)).from_address(parameters))
        assert extra == 0
        maps = b""
        if structs:
            where = addresses.pop(0)
            assert where % 64 == 0, "a struct of tensor maps has the wrong alignment"
            maps = bytes((ctypes.c_uint8 * (128 * structs)).from_address(where))
        values = [ctypes.c_uint64.from_address(address).value for address in addresses[:-1]]
        rows = ctypes.c_int32.from_address(addresses[-1]).value
        base = self._latest if structs else 0
        self.launches.append(_Record(config=config, function=function, maps=maps, values=values, rows=rows, base=base))
        return (self.fails.get("cuLaunchKernelEx", Result.CUDA_SUCCESS),)

    def _encode_tiled(
        self, target, element, rank, base, dims, strides, box, steps, interleave, swizzle, promotion, fill
    ) -> int:
        assert target % 64 == 0, "a tensor map is encoded where the driver does not take it"
        self.encoded.append(
            _Record(
                element=element,
                base=base,
                dims=dims[:rank],
                strides=strides[: rank - 1],
                box=box[:rank],
                steps=steps[:rank],
                modes=(interleave, swizzle, promotion, fill),
            )
        )
        self._write(target, base)
        return int(self.fails.get("cuTensorMapEncodeTiled", Result.CUDA_SUCCESS))

    def _encode_windows(self, target, element, rank, base, dims, strides, lower, upper, channels, count, *rest) -> int:
        assert target % 64 == 0, "a tensor map is encoded where the driver does not take it"
        steps, *modes = rest
        self.encoded.append(
            _Record(
                element=element,
                base=base,
                dims=dims[:rank],
                strides=strides[: rank - 1],
                corners=(lower[: rank - 2], upper[: rank - 2]),
                box=[channels, count],
                steps=steps[:rank],
                modes=tuple(modes),
            )
        )
        self._write(target, base)
        return int(self.fails.get("cuTensorMapEncodeIm2col", Result.CUDA_SUCCESS))

    def _replace_address(self, target, base) -> int:
        assert bytes((ctypes.c_uint8 * 128).from_address(target)) != bytes(128), "a map that was never encoded"
        self.encoded.append(_Record(base=base))
        self._write(target, base)
        return int(self.fails.get("cuTensorMapReplaceAddress", Result.CUDA_SUCCESS))

    def _write(self, target: int, base: int) -> None:
        self._latest = base
        ctypes.memset(target, len(self.encoded) % 256, 128)


class FakeGpu:
    """What the launcher asks of cuda.core: a Device, and the code of a kernel."""

    device_id, default_stream = 0, None
    properties = types.SimpleNamespace(multiprocessor_count=132)

    def __init__(self, resident: int = 1):
        self.allocated: list[int] = []
        self._kernels = 0
        self._resident = resident

    def allocate(self, nbytes: int, stream: Any) -> Any:
        self.allocated.append(nbytes)
        return types.SimpleNamespace(handle=0x100000 * len(self.allocated))

    def get_kernel(self, name: str) -> Any:
        resident = types.SimpleNamespace(max_active_blocks_per_multiprocessor=lambda threads, nbytes: self._resident)
        self._kernels += 1
        return types.SimpleNamespace(handle=6 + self._kernels, occupancy=resident)


def install(monkeypatch: Any, driver: FakeDriver) -> None:
    """Puts the driver where the launcher imports it from."""
    for name, module in {
        "cuda": types.ModuleType("cuda"),
        "cuda.bindings": types.SimpleNamespace(driver=driver),
        "cuda.core": types.SimpleNamespace(Stream=types.SimpleNamespace(from_handle=lambda handle: handle)),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
