"""A device for kitsune_mlir.runtime.gpu.GpuRunner whose kernels run in the simulator, in memory poisoned with NaN
patterns."""

from __future__ import annotations

import bisect
import ctypes
from functools import partial
from typing import Any

import numpy as np

from kitsune_mlir.codegen.gpu_kernel import dynamic_bytes
from kitsune_mlir.codegen.hopper.cluster import size_of
from kitsune_mlir.codegen.host_program import written
from kitsune_mlir.mlir import ir
from kitsune_mlir.runtime.index_reports import WORD

from .arithmetic import dtype_of
from .decode import Op, decode
from .faults import named
from .index_reports import reported
from .launcher import Launcher
from .lockstep import Lockstep, MemRef, kernels

POISON = 0xFF  # NaN in every float type, -1 in every integer


class SimulatedMemory:
    """Bytes at an address of this process, aligned as the driver's are."""

    def __init__(self, device: SimulatedDevice, nbytes: int):
        self.array = np.full(nbytes + 256, POISON, np.uint8)
        skip = -self.array.ctypes.data % 256
        self.bytes = self.array[skip : skip + nbytes]
        self.pointer = self.bytes.ctypes.data
        device.add(self)


class SimulatedWords:
    """Words of the host that kernels write."""

    def __init__(self, count: int):
        self._words = (ctypes.c_uint32 * count)()
        self.address = self.pointer = ctypes.addressof(self._words)


class SimulatedDevice:
    """Runs the kernels of `module`, which has been through convert-linalg-to-gpu.

    `seed` is an order in which CTAs, warps and copies take turns. `launches` counts the kernels of single operators,
    `pipeline_launches` those of pipelines; `described` are the pipelines' launches as the manifest describes them.
    `decoded` holds the pipelines' kernels by name once they are read; another device of the same module may be given
    it, and need not read them again."""

    number = 0

    def __init__(self, module: ir.Module, seed: int = 0, decoded: dict[str, Op] | None = None):
        self._kernels = kernels(module)
        self.decoded: dict[str, Op] = {} if decoded is None else decoded
        self._operators: dict[str, Op] = {}  # kernels of single operators by name, once they are read
        self._module = module
        self._memories: dict[int, np.ndarray] = {}
        self._pointers: list[int] = []
        self.rng = np.random.default_rng(seed)
        self.allocations = self.launches = self.pipeline_launches = 0
        self.described: list[dict[str, Any]] = []
        self._pointed: dict[str, int] = {}  # by module, where its word lies
        self._fresh: list[tuple[int, int]] = []  # where kernels have written since the last that began alone
        self.captured = False

    def add(self, memory: SimulatedMemory) -> None:
        self.allocations += 1
        if memory.pointer not in self._memories:
            bisect.insort(self._pointers, memory.pointer)
        self._memories[memory.pointer] = memory.bytes

    def _bytes_at(self, pointer: int) -> np.ndarray:
        """From `pointer` to the end of its allocation."""
        base = self._pointers[bisect.bisect_right(self._pointers, pointer) - 1]
        found = self._memories[base][pointer - base :]
        assert len(found), f"pointer {pointer:#x} is in no allocation"
        return found

    def bytes_of(self, pointer: int, nbytes: int) -> np.ndarray:
        """So many bytes at an address, to read or write."""
        found = self._bytes_at(pointer)[:nbytes]
        assert len(found) == nbytes
        return found

    def check(self, manifest: dict[str, Any]) -> None:
        assert manifest["kind"] == "gpu"

    def allocate(self, nbytes: int, stream: int) -> SimulatedMemory:
        assert not self.captured, "an allocation under capture"
        return self.memory(nbytes)

    def memory(self, nbytes: int) -> SimulatedMemory:
        """New memory, of which nothing was written."""
        return SimulatedMemory(self, nbytes)

    def write(self, pointer: int, array: np.ndarray, stream: int) -> None:
        assert not self.captured, "a copy from the host under capture"
        self._bytes_at(pointer)[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def read(self, array: np.ndarray, pointer: int, stream: int) -> None:
        array.reshape(-1).view(np.uint8)[:] = self._bytes_at(pointer)[: array.nbytes]

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._bytes_at(target)[:nbytes] = self._bytes_at(source)[:nbytes].copy()
        self._fresh = []  # neither copies nor fills overlap kernels

    def zero(self, pointer: int, nbytes: int, stream: int) -> None:
        self._bytes_at(pointer)[:nbytes] = 0
        self._fresh = []

    def load(self, name: str, files: dict[str, bytes]) -> str:
        assert f"{name}.ptx" in files
        return name

    def kernel(self, code: str, name: str, overlapped: bool = False) -> ir.Operation:
        return self._kernels[name]

    def launch(
        self,
        kernel: ir.Operation,
        grid: Any,
        block: Any,
        parameters: int,
        stream: int,
        alone: bool = True,
        cluster: int = 1,
        shared_bytes: int = 0,
    ) -> None:
        assert cluster == size_of(kernel) and shared_bytes == dynamic_bytes(kernel)
        self.launches += 1
        reader = _Parameters(parameters)
        given = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).inputs
        arguments = [self._argument(kind, reader) for kind in given]
        data = [arguments[number].data for number in written(kernel)]
        self.written([(one.ctypes.data, one.ctypes.data + one.nbytes) for one in data], alone)
        module = ir.StringAttr(kernel.parent.attributes["sym_name"]).value
        name = ir.StringAttr(kernel.attributes["sym_name"]).value
        if name not in self._operators:
            self._operators[name] = decode(kernel)
        with named(name), reported(partial(self.report, module)):
            Lockstep(self._operators[name], arguments, grid, block, cluster).run()

    def written(self, places: list[tuple[int, int]], alone: bool) -> None:
        """A kernel writes from addresses to others; `alone`: those before it have ended."""
        self._fresh = ([] if alone else self._fresh) + places

    def is_fresh(self, start: int, end: int) -> bool:
        """Whether a kernel writes there that may not have ended when the next one begins."""
        return any(first < end and start < last for first, last in self._fresh)

    def _argument(self, kind: ir.Type, reader: _Parameters) -> Any:
        if not isinstance(kind, ir.MemRefType):
            return reader.next().view(dtype_of(kind))[0]
        pointer, again, offset = (int(reader.next()[0]) for _ in range(3))
        assert pointer == again
        shape, strides = (tuple(int(reader.next()[0]) for _ in range(kind.rank)) for _ in range(2))
        element = dtype_of(kind.element_type)
        found = self._bytes_at(pointer) if np.prod(shape) else np.zeros(0, np.uint8)
        data = found[: len(found) // element.itemsize * element.itemsize].view(element)
        return MemRef(data, offset, shape, strides)

    def host_words(self, count: int) -> SimulatedWords:
        self._words = SimulatedWords(count)
        return self._words

    def point(self, code: str, name: str, pointer: int) -> None:
        assert name == WORD
        self._pointed[code] = pointer

    def report(self, code: str, number: int) -> None:
        """What a kernel of module `code` writes where a check of a row number fails."""
        word = ctypes.c_uint32.from_address(self._pointed[code])
        word.value = max(word.value, number)

    def wait(self) -> None:
        assert not self.captured, "a wait under capture"

    def pipeline(self, launch: dict[str, Any], code: str, overlapped: bool = False) -> Launcher:
        self.described.append(launch)
        name = launch["kernel"]
        if name not in self.decoded:
            self.decoded[name] = decode(self._kernels[name])
        return Launcher(self, launch, code, self.decoded[name], overlapped)

    def array(self, value: Any, stream: int) -> None:
        return None

    def capturing(self, stream: int) -> bool:
        return self.captured

    def stream(self, inputs: Any, stream: Any) -> int:
        return stream or 0

    def synchronize(self, stream: int) -> None:
        assert not self.captured, "a wait under capture"

    def order(self, before: int, after: int) -> None:
        raise AssertionError("no other streams here")


class _Parameters:
    """Reads an array of addresses of 64-bit slots."""

    def __init__(self, address: int):
        self._address = address

    def next(self) -> np.ndarray:
        slot = ctypes.c_uint64.from_address(self._address).value
        self._address += 8
        return np.frombuffer((ctypes.c_uint8 * 8).from_address(slot), np.int64)
