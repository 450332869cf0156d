"""Kernels built by hand, on the stand-in GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.codegen.hopper.tma import TensorMap
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import ir, llvm
from kitsune_mlir.tools.gpusim.arithmetic import DTYPES
from kitsune_mlir.tools.gpusim.decode import decode
from kitsune_mlir.tools.gpusim.device import SimulatedDevice
from kitsune_mlir.tools.gpusim.launcher import Launcher

NAME = "kernel_by_hand"
_NAMES = {np.dtype(kind): name for name, kind in DTYPES.items() if name != "index"}


def run(
    body: Callable[..., None],
    inputs: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    *,
    ctas: int,
    threads: int,
    shared_bytes: int,
    maps: Sequence[TensorMap] = (),
    cluster: int = 1,
    workspace_bytes: int = 0,
    seed: int = 0,
    launches: int = 1,
) -> None:
    """`body` emits the kernel: it takes the tensor maps if there are any, pointers to inputs, results and the
    workspace, and the rows of the first input. Fills `results`."""
    ctx = mlir.context()
    with ctx, ir.Location.unknown():
        module = ir.Module.create()
        pointers = [device.pointer_type(device.GLOBAL)] * (len(inputs) + len(results) + 1)
        arguments = [ir.Type.parse("!llvm.ptr")] * bool(maps) + pointers + [device.i32()]
        with ir.InsertionPoint(module.body):
            gpu_module = device.gpu.GPUModuleOp(f"{NAME}_module")
        with ir.InsertionPoint(gpu_module.bodyRegion.blocks.append()):
            linkage = ir.Attribute.parse("#llvm.linkage<external>")
            shared = ir.Type.parse("!llvm.array<0 x i8>")
            llvm.GlobalOp(shared, "shared", linkage, addr_space=device.SHARED, alignment=1024)
            kernel = device.gpu.GPUFuncOp(ir.FunctionType.get(arguments, []), NAME, kernel=True)
            with ir.InsertionPoint(kernel.body.blocks.append(*arguments)):
                body(*kernel.body.blocks[0].arguments)
                device.gpu.ReturnOp([])
        assert module.operation.verify()
        gpu = SimulatedDevice(module, seed)
        decoded = decode(gpu.kernel(NAME, NAME))
    description = {
        "kernel": NAME,
        "ctas": ctas,
        "threads": threads,
        "shared_bytes": shared_bytes,
        "workspace_bytes": workspace_bytes,
        "cluster": cluster,
        "watched": [],
        "streams": [0],
        "maps": [map_.description() for map_ in maps],
        "specialised": True,
    }
    arrays = [*inputs, *results]
    memories = [gpu.allocate(array.nbytes, 0) for array in arrays]
    for memory, array in zip(memories, inputs, strict=False):
        gpu.write(memory.pointer, array, 0)
    described: list[Any] = [
        (memory.pointer, array.shape, _NAMES[array.dtype]) for memory, array in zip(memories, arrays, strict=True)
    ]
    launcher = Launcher(gpu, description, NAME, decoded, overlapped=False)
    for _ in range(launches):
        launcher.launch(0, described[: len(inputs)], described[len(inputs) :])
    for memory, array in zip(memories[len(inputs) :], results, strict=True):
        gpu.read(array, memory.pointer, 0)


def shared_pointer() -> ir.Value:
    return llvm.AddressOfOp(device.pointer_type(device.SHARED), "shared").result


def shared_base() -> ir.Value:
    """The same as a number (i32): in a cluster it carries the CTA's rank."""
    return llvm.PtrToIntOp(device.i32(), shared_pointer()).result
