"""Which tensors a pipeline's kernel is called with that no kernel of the run writes: arguments of @main that it only
reads, constants, and what is computed of weights alone when the program is loaded (runtime/weight_steps.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kitsune_mlir import weights
from kitsune_mlir.mlir import clone, ir, walk
from kitsune_mlir.runtime.host_program import Step
from kitsune_mlir.runtime.weight_steps import split

from .host_program import manifest_of


def constant_tensors(module: ir.Module) -> dict[str, set[int]]:
    """By pipeline the numbers of the operands that are constant at all of its calls. The module, after
    convert-linalg-to-gpu, is not changed."""
    module = clone(module)
    mains = [op for op in walk(module, "func.func") if op.opview.name.value == "main"]
    if not mains:
        return {}
    manifest, own = manifest_of(module), weights.numbers(mains[0])
    arguments = len(manifest["arguments"])
    parts = split(manifest, [number in own for number in range(arguments)])
    found: dict[str, set[int]] = {}
    for steps in (parts.once, parts.rest):
        for name, numbers in _of_run(steps, arguments):
            found[name] = found.get(name, numbers) & numbers
    return found


def _of_run(steps: Sequence[Step], arguments: int) -> list[tuple[str, set[int]]]:
    """The pipelines of a run, each with the numbers of its constant operands."""
    roots = {f"a{number}": f"a{number}" for number in range(arguments)}
    constant, written = set(roots), set()
    for step in steps:
        match step["op"]:
            case "kept" | "global":
                roots[step["to"]] = step["to"]
                constant.add(step["to"])
            case "view":
                roots[step["to"]] = roots.get(step["of"], "")
            case "metadata":
                roots[step["base"]] = roots.get(step["of"], "")
            case "launch":
                written |= {_root(roots, step["args"][number]) for number in step["writes"]}
            case "copy":
                written.add(_root(roots, step["into"]))
            case "pipeline":
                written |= {_root(roots, result["into"]) for result in step["results"] if "into" in result}
    constant -= written
    return [
        (step["name"], {number for number, name in enumerate(step["args"]) if _root(roots, name) in constant})
        for step in steps
        if step["op"] == "pipeline"
    ]


def _root(roots: dict[str, str], name: Any) -> str:
    return roots.get(name, "")
