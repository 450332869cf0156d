"""A module in the llvm dialect -> a shared object for the machine at hand, through llvmlite's LLVM.

MLIR's own execution engine takes longer: it wraps every function in one that takes an array of pointers, then
optimises and emits all of them. Here only what the runner looks up is seen from outside. Of equal functions, as the
steps of a recurrent layer have, there is one. Functions stay as they are divided: LLVM would put those that are called
once into their caller, and some of its passes take more than twice as long over a function that is twice as long. Loops
are not unrolled: inner ones are vectorised, those of products are written unrolled, and more copies took most of LLVM's
time and made nothing faster.
"""

from __future__ import annotations

import functools
import math
import shutil
import subprocess
import tempfile
from pathlib import Path

import llvmlite.binding as llvm_binding

from kitsune_mlir.errors import InternalError, UnsupportedError
from kitsune_mlir.mlir import ir, llvm, walk
from kitsune_mlir.runtime.cpu_pipelines import STAGE_PREFIX
from kitsune_mlir.runtime.manifest import ENTRY

from .constant_bytes import content_of
from .llvm_text import for_llvmlite

_LARGE = 1024  # elements of constants that do not go through text
_HIDDEN = 1  # LLVM's visibility of what is seen within a shared object alone


def shared_object(module: ir.Module, opt_level: int = 2) -> bytes:
    """Compiles a module in the llvm dialect, which it changes, and links it with the C compiler at hand.

    Raises UnsupportedError when there is none, InternalError when it fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise UnsupportedError(
            "the CPU target links with a C compiler, and there is no cc, gcc or clang on PATH; install one"
        )
    with tempfile.TemporaryDirectory(prefix="kitsune-") as name:
        folder = Path(name)
        sources, target = [folder / "main.o", *_large_constants(module, folder)], folder / "main.so"
        sources[0].write_bytes(_object(module, opt_level))
        command = [compiler, "-shared", "-o", str(target), *map(str, sources), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise InternalError(f"linking the native code failed: {done.stderr.strip().splitlines()[-1:]}")
        return target.read_bytes()


def _large_constants(module: ir.Module, folder: Path) -> list[Path]:
    """Leaves large constants of a module without their values. The C compiler's assembler has these from files: given
    is the assembly text that names them, if there are any."""
    lines = []
    with module.context:
        external, word = ir.Attribute.parse("#llvm.linkage<external>"), ir.IntegerType.get_signless(64)
        for op in walk(module, "llvm.mlir.global"):
            value = op.attributes["value"] if "value" in op.attributes else None
            if not isinstance(value, ir.DenseElementsAttr | ir.DenseResourceElementsAttr) or _elements(value) < _LARGE:
                continue
            symbol, data = ir.StringAttr(op.attributes["sym_name"]).value, folder / f"{len(lines)}.bin"
            data.write_bytes(content_of(value))
            lines += [f'.balign 64\n.globl "{symbol}"\n.hidden "{symbol}"\n"{symbol}": .incbin "{data}"']
            op.attributes["linkage"], op.attributes["visibility_"] = external, ir.IntegerAttr.get(word, _HIDDEN)
            del op.attributes["value"]
    if not lines:
        return []
    text = folder / "constants.s"
    text.write_text("\n".join([".section .rodata", *lines, '.section .note.GNU-stack,"",%progbits', ""]))
    return [text]


def _elements(value: ir.Attribute) -> int:
    return math.prod(ir.ShapedType(value.type).shape)


def _object(module: ir.Module, opt_level: int) -> bytes:
    _hide_functions(module)
    parsed = llvm_binding.parse_assembly(for_llvmlite(llvm.translate_module_to_llvmir(module.operation)))
    machine = _machine(opt_level)
    parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
    options = llvm_binding.create_pipeline_tuning_options(speed_level=opt_level)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
    options.loop_unrolling = False
    builder = llvm_binding.create_pass_builder(machine, options)
    merging = llvm_binding.create_new_module_pass_manager()
    merging.add_merge_functions_pass()
    merging.run(parsed, builder)
    if opt_level:
        builder.getModulePassManager().run(parsed, builder)
    return machine.emit_object(parsed)


def _hide_functions(module: ir.Module) -> None:
    """Functions that the runner does not look up are seen in the module alone, and stay functions."""
    with module.context:
        internal, unit = ir.Attribute.parse("#llvm.linkage<internal>"), ir.UnitAttr.get()
    for function in walk(module, "llvm.func"):
        name = ir.StringAttr(function.attributes["sym_name"]).value
        if function.regions[0].blocks and name != ENTRY and not name.startswith(STAGE_PREFIX):
            function.attributes["linkage"], function.attributes["no_inline"] = internal, unit


@functools.cache
def _machine(opt_level: int) -> llvm_binding.TargetMachine:
    """The machine at hand, with all its instructions."""
    llvm_binding.initialize_native_target()
    llvm_binding.initialize_native_asmprinter()
    return llvm_binding.Target.from_default_triple().create_target_machine(
        cpu=llvm_binding.get_host_cpu_name(),
        features=llvm_binding.get_host_cpu_features().flatten(),
        opt=opt_level,
        reloc="pic",
        codemodel="default",
    )
