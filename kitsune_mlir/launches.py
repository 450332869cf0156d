"""What a call of a compiled model launches, in order, and what each launch is predicted to take: the plan's `launches`.

They are those of the host program at given sizes of the inputs, read as the runtime reads it (runtime/host_program.py,
weight_steps.py). What a launch holds is read where it stands last: a scheduled kernel's in its IR before
convert-kitsune-to-gpu, an operator's in the code of its kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from kitsune_mlir import mlir
from kitsune_mlir.codegen.gpu_kernel import PRICED
from kitsune_mlir.codegen.host_program import CALL_OPERATIONS
from kitsune_mlir.codegen.kernel_work import JOINED, work_of
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.dialects.clusters import MeetOp
from kitsune_mlir.dialects.dots import DotsOp
from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning.cost import LATENCY
from kitsune_mlir.planning.kernel_cost import KernelWork, copied, filled, kernel_price
from kitsune_mlir.planning.target import Target
from kitsune_mlir.runtime.cuda_pipeline import cta_count, open_sources
from kitsune_mlir.runtime.host_program import Call, Copy, Fill, Launch, Pipeline, View, make_plan
from kitsune_mlir.runtime.weight_steps import CALLS, split

COPY, FILL = "copy", "fill"  # the forms of what no kernel does

_OF_PARTS = ("joined", "strands")  # what is said of the kernels that one launch joins


def scheduled(module: ir.Module) -> dict[str, dict[str, Any]]:
    """What is known of the kernels at the schedule level, by name."""
    return {kernel.label: _scheduled(kernel) for kernel in schedule.kernels(module)}


def _form(roles: bool, chained: bool, multiplies: bool, has_dots: bool) -> str:
    what = "roles" if roles else "chain" if chained else "product" if multiplies else "dots" if has_dots else "rows"
    return f"scheduled {what}"


def _scheduled(kernel: schedule.KernelOp) -> dict[str, Any]:
    parts, tiles = kernel.parts, kernel.parts[0].tiles
    products = [op.opview for op in mlir.walk(kernel, schedule.ProductOp.OPERATION_NAME)]
    chained = any(product.is_from_registers for product in products)
    others = len(mlir.walk(kernel, "linalg.generic"))
    extents = [constant(value) for value in tiles.operands]
    words = ["x".join("?" if extent is None else str(extent) for extent in extents)]
    if kernel.has_roles:
        words += [f"{' + '.join(str(part.cta_count) for part in parts)} CTAs", f"{len(products)} products of chunks"]
    elif products and not chained:
        copies = mlir.walk(kernel, schedule.CopyOp.OPERATION_NAME)
        copy = next(copy for copy in copies if len(copy.opview.axes) == 2)  # others bring vectors, and patches
        source, axis = ir.RankedTensorType(copy.operands[1].type), copy.opview.axes[1]
        words += [f"k {'?' if source.is_dynamic_dim(axis) else source.shape[axis]}"]
    seen = any(product.window or product.right_window for product in products)
    words += ["windows of patches"] if seen else []
    splits = not chained and mlir.walk(kernel, MeetOp.OPERATION_NAME)
    shared = "k split over" if splits else "columns shared by"
    words += [f"{shared} {kernel.cluster} CTAs"] if kernel.cluster > 1 else []
    words += [f"{kernel.pairs} pairs of pieces"] if kernel.pairs > 1 else []
    words += [f"{len(products)} products of chunks"] if chained and not kernel.has_roles else []
    words += [f"{others} other{'s' if others > 1 else ''}"] if others else []
    of_warps = [op.opview for op in mlir.walk(kernel, DotsOp.OPERATION_NAME)]
    words += [f"k {ir.RankedTensorType(dots.operands[0].type).shape[1]}" for dots in of_warps]
    return {
        "form": _form(kernel.has_roles, chained, bool(products), bool(of_warps)),
        "computes": ", ".join(words),
        "tile": tiles.sizes,
        "slots": max((ring.slots for part in parts for ring in part.rings), default=None),
        "predicted_us": kernel.predicted_us or 0.0,
        "limit": kernel.limit or LATENCY,
    }


def launches(
    manifest: dict[str, Any],
    module: ir.Module,
    kernels: Sequence[Mapping[str, Any]],
    described: Mapping[str, Mapping[str, Any]],
    bound: Sequence[bool],
    sizes: Sequence[tuple[int, ...]],
    target: Target,
) -> list[dict[str, Any]] | None:
    """The launches of a call with inputs of these sizes (of each argument of @main).

    `module` is that after convert-linalg-to-gpu which the manifest was generated from, `kernels` are the plan's,
    `described` what scheduled kernels hold, by name; `bound` says which arguments are weights. None
    where the host program cannot be run for the sizes.
    """
    parts = split(manifest, bound)
    program = manifest | {"program": parts.rest, "arguments": manifest["arguments"] + parts.kept}
    try:
        plan = make_plan(program, [*sizes, *(tuple(kept["shape"]) for kept in parts.kept)])
    except InternalError:
        return None
    places = _places(manifest["program"], parts.rest, module)
    describe = _Describer(manifest, module, kernels, described, target)
    found = []
    for call in plan.calls:
        place = "" if isinstance(call, Fill) else places.get(call.step, "")
        found += [entry | {"location": place} for entry in describe(call)]
    return found


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


def _places(program: Sequence[dict[str, Any]], rest: Sequence[dict[str, Any]], module: ir.Module) -> dict[int, str]:
    """Where in the model the calls that are made in each run come from, by the number of their step in `rest`."""
    main = next(op for op in mlir.walk(module, "func.func") if op.opview.name.value == "main")
    lines = [mlir.location(op.location) for op in mlir.walk(main, *CALL_OPERATIONS)]
    known = dict(zip((id(step) for step in program if step["op"] in CALLS), lines, strict=True))
    return {number: known[id(step)] for number, step in enumerate(rest) if id(step) in known}


def _computes(function: ir.Operation) -> str:
    """What a kernel of operators does: their labels, without the numbers that tell kernels apart."""
    strands = [_symbol(function)]
    if JOINED in function.attributes:
        strands = [ir.StringAttr(strand).value for strand in ir.ArrayAttr(function.attributes[JOINED])]
    return "; ".join(re.sub(r"_\d+\b", "", strand) for strand in strands)


class _Describer:
    """Describes calls; those that are equal are priced once."""

    def __init__(
        self,
        manifest: dict[str, Any],
        module: ir.Module,
        kernels: Sequence[Mapping[str, Any]],
        described: Mapping[str, Mapping[str, Any]],
        target: Target,
    ):
        self._pipelines, self._described, self._target = manifest["pipelines"], described, target
        self._kernels = {(kernel["module"], kernel["name"]): kernel for kernel in kernels}
        plain = manifest["modules"].keys() - {entry["module"] for entry in manifest["pipelines"].values()}
        self._functions = {  # of operators, by name, each with its module's name
            _symbol(op): (_symbol(part), op)
            for part in mlir.walk(module, "gpu.module")
            if _symbol(part) in plain
            for op in mlir.walk(part, "gpu.func")
        }
        self._priced: dict[Any, dict[str, Any]] = {}

    def __call__(self, call: Call) -> list[dict[str, Any]]:
        if isinstance(call, Pipeline):
            return self._pipeline(call)
        if isinstance(call, Copy):
            return [self._copy(call)]
        if isinstance(call, Fill):
            return [self._fill(sum(view.nbytes for view in call.views))]
        return [self._operator(call)]

    def _pipeline(self, call: Pipeline) -> list[dict[str, Any]]:
        """One launch. None for no rows, unless they are summed."""
        entry, known = self._pipelines[call.name], self._described[call.name]
        launch = entry["launch"]
        sizes = [call.arguments[number].shape[axis] for number, axis in open_sources(launch)]
        if not sizes[0] and not launch.get("sums"):
            return []
        return [
            {
                "kernel": launch["kernel"],
                **{key: known[key] for key in ("form", "computes", "tile", "slots", "limit")},
                "ctas": cta_count(launch, sizes),
                "threads": launch["threads"],
                "registers": self._kernels[entry["module"], launch["kernel"]]["registers"],
                "shared_bytes": launch["shared_bytes"],
                "predicted_us": round(max(self._target.launch_us, known["predicted_us"]), 3),
            }
        ]

    def _copy(self, call: Copy) -> dict[str, Any]:
        return self._single(COPY, COPY, "copy of memory", copied(call.source.nbytes, self._target), None)

    def _fill(self, nbytes: int) -> dict[str, Any]:
        return self._single(FILL, FILL, "fill of memory", filled(nbytes, self._target), None)

    def _operator(self, call: Launch) -> dict[str, Any]:
        key = call.kernel, call.grid, tuple(replace(a, buffer=0) if isinstance(a, View) else a for a in call.arguments)
        if key not in self._priced:
            holder, function = self._functions[call.kernel]
            registers = self._kernels[holder, call.kernel]["registers"] or 32
            work = work_of(function, call, registers)
            found = self._single(call.kernel, "operator", _computes(function), work, holder)
            if PRICED in function.attributes:
                found["predicted_us"] = round(ir.FloatAttr(function.attributes[PRICED]).value, 3)
            self._priced[key] = found
        return self._priced[key]

    def _single(self, name: str, form: str, computes: str, work: KernelWork, holder: str | None) -> dict[str, Any]:
        price = kernel_price(work, self._target)
        known = self._kernels[holder, name] if holder else {"registers": None, "shared": None}
        return {
            "kernel": name,
            "form": form,
            "computes": computes,
            "tile": None,
            "slots": None,
            "limit": price.limit,
            "ctas": work.blocks if holder else None,
            "threads": work.threads if holder else None,
            "registers": known["registers"],
            "shared_bytes": known["shared"],
            "predicted_us": round(price.us, 3),
            "work": {key: round(float(value), 1) for key, value in asdict(work).items() if key not in _OF_PARTS},
        }
