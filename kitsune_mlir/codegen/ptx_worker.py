"""What of GPU code generation runs in `kitsune_mlir.worker`: all that `kitsune_mlir.codegen.ptx` needs.

Translation to LLVM IR and the NVPTX back end abort the process on input they do not like.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm_binding

from kitsune_mlir.codegen.device_math import expand_math
from kitsune_mlir.codegen.gpu_kernel import STATIC
from kitsune_mlir.codegen.llvm_text import for_llvmlite
from kitsune_mlir.codegen.pipeline.device import SHARED
from kitsune_mlir.codegen.streamed import expand_streamed
from kitsune_mlir.mlir import attr_int, first_line, ir, llvm, pass_manager, upstream_context, walk

# Memref arguments become expanded descriptors (codegen/host_program.py passes them so).
LOWER = (
    "builtin.module(gpu.module("
    "convert-vector-to-scf,expand-strided-metadata,lower-affine,memref-expand,arith-expand{include-bf16=0},"
    "convert-nvgpu-to-nvvm,convert-scf-to-cf,convert-gpu-to-nvvm,convert-nvvm-to-llvm,convert-vector-to-llvm,"
    "convert-arith-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts,canonicalize,cse))"
)
# On a gpu.func: its first parameter is so many tensor maps, by value, that the copy engine reads where they are.
MAPS, MAP_BYTES = "kitsune.maps", 128
# A kernel whose author fixed the order of instructions says so on its gpu.module; LLVM then only selects.
SCHEDULED = "kitsune.scheduled"

_TRIPLE = "nvptx64-nvidia-cuda"
# Without it loads and stores of i64 are taken to lie at multiples of 4 bytes, and made two. What else it says is what
# LLVM's back end says itself, in the end.
_LAYOUT = "e-i64:64"
_ARRAY = re.compile(r"!llvm\.array<(\d+) x b?[fi](\d+)>")
_LIBDEVICE = re.compile(r"@(__nv_\w+)")

_requests, _REQUESTS_OF_ONE = itertools.count(), 50


@lru_cache(maxsize=1)
def _context(number: int) -> ir.Context:
    """To make a context takes as long as to lower a small kernel, so that many requests have one. It keeps what it
    holds of modules that are gone, so that now and then there is another."""
    context = upstream_context()
    context.allow_unregistered_dialects = True  # attributes of the kitsune dialect mean nothing here
    return context


def lower(module: ir.Module) -> ir.Operation:
    """Lowers the one gpu.module inside `module` to the LLVM dialect and gives it."""
    expand_math(walk(module, "gpu.module")[0])
    expand_streamed(walk(module, "gpu.module")[0])
    maps = {
        ir.StringAttr(function.attributes["sym_name"]).value: attr_int(function, MAPS)
        for function in walk(module, "gpu.func")
        if MAPS in function.attributes
    }
    pass_manager(module.context, LOWER).run(module.operation)
    module.operation.verify()
    for buffer in walk(module, "llvm.mlir.global"):
        _size_at_launch(buffer)
    for function in walk(module, "llvm.func"):
        if "gpu.kernel" not in function.attributes and len(function.regions[0].blocks):
            function.attributes["convergent"] = ir.UnitAttr.get()
        elif count := maps.get(ir.StringAttr(function.attributes["sym_name"]).value):
            _pass_maps_by_value(function, count)
    return walk(module, "gpu.module")[0]


def _size_at_launch(buffer: ir.Operation) -> None:
    """A buffer in shared memory that is larger than a kernel may declare is as large as its launch says (PTX ISA,
    State Spaces: .extern .shared)."""
    kind = ir.TypeAttr(buffer.attributes["global_type"]).value
    found = _ARRAY.fullmatch(str(kind))
    space = ir.IntegerAttr(buffer.attributes["addr_space"]).value if "addr_space" in buffer.attributes else 0
    if space == SHARED and found is not None and int(found[1]) * int(found[2]) // 8 > STATIC:
        buffer.attributes["global_type"] = ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<0 x {kind.element_type}>"))
        buffer.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")
        for name in ("dso_local", "value"):
            if name in buffer.attributes:
                del buffer.attributes[name]


def _pass_maps_by_value(function: ir.Operation, count: int) -> None:
    arguments = (
        [ir.DictAttr(attr) for attr in ir.ArrayAttr(function.attributes["arg_attrs"])]
        if ("arg_attrs" in function.attributes)
        else [ir.DictAttr.get({})] * len(function.regions[0].blocks[0].arguments)
    )
    i64 = ir.IntegerType.get_signless(64)
    arguments[0] = ir.DictAttr.get(
        {
            "llvm.byval": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{count * MAP_BYTES} x i8>")),
            "nvvm.grid_constant": ir.UnitAttr.get(),
            "llvm.align": ir.IntegerAttr.get(i64, 64),
        }
    )
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)


def to_llvm(module: ir.Module) -> str:
    """LLVM IR text that llvmlite reads."""
    lowered = lower(module)
    lowered.attributes["llvm.data_layout"] = ir.StringAttr.get(_LAYOUT)
    text = llvm.translate_module_to_llvmir(lowered)
    if missing := _LIBDEVICE.search(text):
        raise ValueError(f"it calls {missing.group(1)}, which is in CUDA's libdevice")
    return for_llvmlite(text)


def to_assembly(text: str, chip: str, features: str, optimise: bool) -> str:
    """PTX of LLVM IR text, through LLVM's O3 pipeline first when `optimise`."""
    llvm_binding.initialize_all_targets()
    llvm_binding.initialize_all_asmprinters()
    parsed = llvm_binding.parse_assembly(text)
    parsed.triple = _TRIPLE
    machine = llvm_binding.Target.from_triple(_TRIPLE).create_target_machine(cpu=chip, features=features, opt=3)
    parsed.data_layout = str(machine.target_data)
    if optimise:
        options = llvm_binding.create_pipeline_tuning_options(speed_level=3)
        # ptxas vectorises nothing and has its own unroller; LLVM's vectorisers only cost registers here.
        options.loop_vectorization = options.slp_vectorization = False
        options.loop_unrolling = True
        builder = llvm_binding.create_pass_builder(machine, options)
        builder.getModulePassManager().run(parsed, builder)
    return machine.emit_assembly(parsed)


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Serves one request: {"module": one gpu.module in MLIR's binary form, "chip": "sm_90a", "features": "+ptx86",
    "emit": "llvm" or "ptx"}. Gives {"text": ...} or {"error": one line}."""
    context = _context(next(_requests) // _REQUESTS_OF_ONE)
    try:
        with context, ir.Location.unknown():
            module = ir.Module.parse(request["module"])
            optimise = SCHEDULED not in walk(module, "gpu.module")[0].attributes
            text = to_llvm(module)
        if request["emit"] == "llvm":
            return {"text": text}
        return {"text": to_assembly(text, request["chip"], request["features"], optimise)}
    except (ir.MLIRError, ValueError) as error:
        return {"error": first_line(error)}
    except RuntimeError as error:  # llvmlite's, of several lines
        return {"error": "; ".join(str(error).splitlines()[:3])}
