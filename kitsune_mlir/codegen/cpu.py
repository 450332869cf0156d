"""The CPU target's share of an artifact: one shared object and the manifest that `CpuRunner` reads."""

from __future__ import annotations

from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import clone, ir, walk
from kitsune_mlir.planning.target import Target
from kitsune_mlir.runtime import cpu_features
from kitsune_mlir.runtime.manifest import ENTRY

from .cpu_bounds import checks_of, guard_divisors, guard_indices
from .cpu_lower import lower_to_llvm
from .cpu_object import shared_object
from .section import Section, seal


def build(module: ir.Module, target: Target, opt_level: int = 2) -> Section:
    """Compiles @main of `module` (linalg on tensors, pipelines already converted) for this machine.

    The manifest holds `arguments` and `results` (shape with null for a dynamic size, dtype), `host` (what
    the processor must have), `pipelines` (plans), `checks` (what a result
    after the others means when it is not 0) and the entry's symbol; the only file is "main.so".
    `module` is not changed.
    Raises UnsupportedError without a C compiler, InternalError when a pass fails.
    """
    module = clone(module)
    main = _main(module)
    kinds, checks = main.type, checks_of(main)
    manifest = {
        "kind": "cpu",
        "target": target.name,
        "entry": ENTRY,
        "arguments": [describe(kind) for kind in kinds.inputs],
        "results": [describe(kind) for kind in kinds.results[: len(kinds.results) - len(checks)]],
        "host": cpu_features.host(),
    }
    manifest["checks"] = checks + guard_indices(main) + guard_divisors(module, main)
    main.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get(module.context)
    manifest["pipelines"], manifest["scratch_bytes"] = lower_to_llvm(module)
    return seal(Section(manifest, {"main.so": shared_object(module, opt_level)}))


def describe(kind: ir.RankedTensorType) -> dict[str, object]:
    """A tensor type as JSON: {"shape": [4, null], "dtype": "bf16"}."""
    shape = [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
    return {"shape": shape, "dtype": str(kind.element_type)}


def _main(module: ir.Module) -> ir.OpView:
    for op in walk(module, "func.func"):
        if op.opview.name.value == "main":
            return op.opview
    raise InternalError("the module has no function @main")
