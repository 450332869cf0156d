"""The manifest of an artifact: what each field may be, and what the fields must say of one another.

`check` comes before everything else that reads a manifest, so that a size, an index or a name is known to fit before
memory is allocated, a symbol looked up or a pointer made by it. docs/artifact.md says what the fields mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from kitsune_mlir.codegen.section import Section, is_sealed
from kitsune_mlir.program import ELEMENT_TYPES
from kitsune_mlir.signature import CONSTANTS
from kitsune_mlir.size_conditions import is_condition

from .cpu_pipelines import KINDS
from .host_program import BYTES
from .manifest_gpu import GPU, TENSOR, check_gpu
from .schema import (
    HASH,
    NULL,
    NUMBER,
    OPEN_SIZE,
    SIZE,
    TEXT,
    Kind,
    Table,
    among,
    either,
    expect,
    whole,
)
from .schema import check as fits

ENTRY = "_mlir__mlir_ciface_main"  # what calls @main, by the name that MLIR's execution engine gives it
DEPTH = 64  # of nested inputs and results
WORKERS = 4096  # threads of one CPU pipeline


def _is_operand(value: Any) -> bool:
    """Whether a value is [kind, number, bytes of a row]."""
    triple = isinstance(value, list) and len(value) == 3 and value[0] in KINDS
    return triple and SIZE.test(value[1]) and SIZE.test(value[2])


_CONSTANT = Kind("a constant", lambda v: v is None or isinstance(v, CONSTANTS))
_CONDITION = Kind("a condition of sizes", lambda v: isinstance(v, list) and is_condition(v))
_TREE = Kind("an object", lambda v: isinstance(v, dict))
_SPEC = {
    "name": TEXT,
    "dtype": among(ELEMENT_TYPES),
    "shape": [OPEN_SIZE],
    "symbols": [either(TEXT, NULL)],
    "order": [SIZE],
}
_KERNEL = {
    "name": TEXT,
    "module": TEXT,
    "origin": TEXT,
    **dict.fromkeys(("registers", "shared"), either(SIZE, NULL)),
    **dict.fromkeys(("stack?", "spill_stores?", "spill_loads?", "ctas?", "threads?"), SIZE),
}
_COUNTED = either(whole(0, 1 << 31), NULL)
_LAUNCHED = {
    **dict.fromkeys(("kernel", "form", "computes", "location", "limit"), TEXT),
    **dict.fromkeys(("ctas", "threads", "slots", "registers", "shared_bytes"), either(SIZE, NULL)),
    "tile": either(NULL, Kind("a list of sizes", lambda v: isinstance(v, list) and all(map(SIZE.test, v)))),
    "predicted_us": NUMBER,
    "work?": Table(NUMBER),
}
_PLAN = {
    "target": TEXT,
    "operators": {"total": SIZE, "pipelined": SIZE},
    "pipelines": [
        {
            "name": TEXT,
            "shape": either(TEXT, NULL),
            **dict.fromkeys(("rows?", "tile_rows", "cluster"), _COUNTED),
            "predicted_us": either(NUMBER, NULL),
            "limit?": either(TEXT, NULL),
            "dram_bytes": NUMBER,
            "stages": [
                {
                    **dict.fromkeys(("name", "computes", "location"), TEXT),
                    "kind": among(("tensor", "simt")),
                    **dict.fromkeys(("role", "ctas"), _COUNTED),
                    "operators": SIZE,
                }
            ],
            "queues": [
                {
                    **dict.fromkeys(("name", "producer"), TEXT),
                    "consumers": [TEXT],
                    "transport": either(among(("reg", "smem", "dsmem", "l2", "hbm")), NULL),
                    **dict.fromkeys(("depth", "tile_bytes"), SIZE),
                }
            ],
        }
    ],
    "dram_bytes": {"bulk_sync": NUMBER, "planned": NUMBER},
    "predicted_us": NUMBER,
    "kernels": [_KERNEL],
    "launches?": [_LAUNCHED],
    "input_sizes?": [[SIZE]],
    "declined": [dict.fromkeys(("operator", "reason", "location"), TEXT)],
    "cuts?": [dict.fromkeys(("pipeline", "reason"), TEXT)],
    "matmul_precision?": TEXT,
}
MANIFEST = {
    "kitsune_format": whole(0, 1 << 31),
    "version": TEXT,
    "name": TEXT,
    "signature": dict.fromkeys(("args", "kwargs", "results"), _TREE),
    "arguments": [{"spec": _SPEC, "kind": among(("input", "parameter", "buffer", "constant")), "sha256?": HASH}],
    "outputs": [{"spec": _SPEC, "kind": among(("result", "mutation")), "mutates": either(SIZE, NULL)}],
    "conditions?": [_CONDITION],
    "targets": Table({"kind": among(("cpu", "gpu")), "section": _TREE, "files": Table(HASH), "plan": _PLAN}),
}
_CPU = {
    "kind": among(("cpu",)),
    "target": TEXT,
    "entry": among((ENTRY,)),  # of all the symbols that a loaded library may lead to, our own
    "arguments": [TENSOR],
    "results": [TENSOR],
    "host": {"machine": TEXT, "features": [TEXT]},
    "checks": [TEXT],
    "scratch_bytes": SIZE,
    "pipelines": [
        {
            "name": TEXT,
            "tile_rows": whole(1, 1 << 31),
            "rows_of": SIZE,
            "pointers": whole(1, 1 << 20),
            "outputs_at": SIZE,
            "queues": [{"name": TEXT, "tile_bytes": SIZE, "depth": whole(1, 1 << 16), "add": either(TEXT, NULL)}],
            "stages": [
                {
                    "name": TEXT,
                    "symbol": TEXT,
                    "role": SIZE,
                    "replicas": whole(1, WORKERS),
                    "scratch": SIZE,
                    "operands": [Kind("[kind, number, bytes of a row]", _is_operand)],
                }
            ],
        }
    ],
}


def check(manifest: Any) -> None:
    """Checks all but the sections of the targets, which `check_section` does once their files are read. Raises
    Mismatch, which says what does not fit."""
    fits(manifest, MANIFEST, "the manifest")
    _check_interface(manifest)
    expect(bool(manifest["targets"]), "the manifest must have a target")
    for name, target in manifest["targets"].items():
        expect(target["plan"]["target"] == name, f"the plan of target '{name}' must be its own")
        _check_plan(target["plan"], f"the plan for '{name}'")


def check_section(manifest: Mapping[str, Any], name: str, files: Mapping[str, bytes]) -> None:
    """Checks the section of target `name` against the rest of the manifest, which `check` has passed, and against its
    files. Raises Mismatch."""
    target = manifest["targets"][name]
    section, where = target["section"], f"targets.{name}.section"
    fits(section, _CPU if target["kind"] == "cpu" else GPU, where)
    expect(section["target"] == name, f"{where}.target must be '{name}'")
    for kind, specs in (("arguments", manifest["arguments"]), ("results", manifest["outputs"])):
        expect(len(section[kind]) == len(specs), f"{where}.{kind} must be {len(specs)}")
        for i, (tensor, entry) in enumerate(zip(section[kind], specs, strict=True)):
            _check_tensor(tensor, entry["spec"], f"{where}.{kind}[{i}]")
    if target["kind"] == "cpu":
        expect(set(files) == {"main.so"}, f"{where} must have the one file main.so")
        for i, pipeline in enumerate(section["pipelines"]):
            _check_pipeline(pipeline, f"{where}.pipelines[{i}]")
    else:
        check_gpu(section, files, where)
    expect(is_sealed(Section(section, dict(files))), f"the code for '{name}' must have been made with this manifest")


def nbytes(spec: Mapping[str, Any]) -> int:
    """The bytes of a tensor of fixed shape."""
    return prod(spec["shape"]) * BYTES[ELEMENT_TYPES[spec["dtype"]][0]]


def _check_interface(manifest: Mapping[str, Any]) -> None:
    arguments, outputs = manifest["arguments"], manifest["outputs"]
    for i, argument in enumerate(arguments):
        spec, given = argument["spec"], argument["kind"] == "input"
        expect(given != ("sha256" in argument), f"arguments[{i}] must have a sha256 unless it is an input")
        expect(given or None not in spec["shape"], f"arguments[{i}] must have a fixed shape")
        expect(given or nbytes(spec) <= 1 << 48, f"arguments[{i}] must be smaller")
    for i, output in enumerate(outputs):
        changed = output["mutates"]
        expect((output["kind"] == "mutation") == (changed is not None), f"outputs[{i}] must say what it changes")
        if changed is not None:
            expect(changed < len(arguments), f"outputs[{i}].mutates must be an argument, found {changed}")
            _check_like(output["spec"], arguments[changed]["spec"], f"outputs[{i}]")
    for entry in (*arguments, *outputs):
        spec = entry["spec"]
        expect(len(spec["symbols"]) in (0, len(spec["shape"])), f"{spec['name']} must have a symbol for each size")
        places = list(range(len(spec["shape"]))) if spec["order"] else []
        expect(sorted(spec["order"]) == places, f"{spec['name']} must have each of its dimensions once in its order")
        expect(not spec["order"] or entry.get("kind") == "input", f"{spec['name']} is no input, it has no order")
    signature = manifest["signature"]
    inputs = sum(argument["kind"] == "input" for argument in arguments)
    results = sum(output["kind"] == "result" for output in outputs)
    expect("tuple" in signature["args"], "signature.args must be a tuple")
    expect("dict" in signature["kwargs"], "signature.kwargs must be a dict")
    given = [*_leaves(signature["args"], "signature.args"), *_leaves(signature["kwargs"], "signature.kwargs")]
    expect(sorted(given) == list(range(inputs)), f"the signature must name each of {inputs} inputs once")
    returned = set(_leaves(signature["results"], "signature.results"))
    expect(returned == set(range(results)), f"the signature must name each of {results} results")
    shapes = [output["spec"]["shape"] for output in outputs if output["kind"] == "result"]
    expect(
        all(not shapes[i] for i in _numbers(signature["results"])), "a number must come from a tensor of one element"
    )
    expect(not [*_numbers(signature["args"]), *_numbers(signature["kwargs"])], "only results can be numbers")


def _leaves(tree: Any, where: str, depth: int = 0) -> Iterator[int]:
    """The tensors that a tree (kitsune_mlir/signature.py) names. Raises Mismatch when it is none."""
    expect(depth < DEPTH and isinstance(tree, dict) and len(tree) == 1, f"{where} must be a tree")
    ((kind, content),) = tree.items()
    if kind in ("leaf", "number"):
        fits(content, SIZE, where)
        yield content
    elif kind in ("list", "tuple"):
        fits(content, [_TREE], where)
        for i, item in enumerate(content):
            yield from _leaves(item, f"{where}[{i}]", depth + 1)
    elif kind in ("dict", "named", "record"):
        fits(content, Table(_TREE), where)
        for key, item in content.items():
            yield from _leaves(item, f"{where}.{key}", depth + 1)
    else:
        expect(kind == "constant", f"{where} must be a tree")
        fits(content, _CONSTANT, where)


def _numbers(tree: Any) -> Iterator[int]:
    """Those of the tensors in a sound tree that stand for Python numbers."""
    ((kind, content),) = tree.items()
    if kind == "number":
        yield content
    elif kind in ("list", "tuple", "dict", "named", "record"):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _numbers(item)


def _check_tensor(tensor: Mapping[str, Any], spec: Mapping[str, Any], where: str) -> None:
    """That what the code takes or gives is what a call takes or gives."""
    wanted = ELEMENT_TYPES[spec["dtype"]][0]
    expect(tensor["dtype"] == wanted, f"{where}.dtype must be {wanted}, found {tensor['dtype']}")
    _check_shape(tensor["shape"], spec["shape"], where)


def _check_like(spec: Mapping[str, Any], other: Mapping[str, Any], where: str) -> None:
    expect(spec["dtype"] == other["dtype"], f"{where}.spec.dtype must be {other['dtype']}, found {spec['dtype']}")
    _check_shape(spec["shape"], other["shape"], where)


def _check_shape(shape: list[int | None], other: list[int | None], where: str) -> None:
    """That two shapes can be of one tensor; a size that is open in one may be known in the other."""
    fitting = len(shape) == len(other) and all(None in (a, b) or a == b for a, b in zip(shape, other))
    expect(fitting, f"{where}.shape must be {other}, found {shape}")
    expect(prod(size for size in shape if size is not None) <= 1 << 48, f"{where}.shape must be smaller")


def _check_plan(plan: Mapping[str, Any], where: str) -> None:
    for pipeline in plan["pipelines"]:
        names = {stage["name"] for stage in pipeline["stages"]}
        expect(bool(names), f"{where} must have no pipeline without stages")
        for queue in pipeline["queues"]:
            ends = {queue["producer"], *queue["consumers"]}
            expect(ends <= names, f"{where} must have the stages that queue '{queue['name']}' joins")


def _check_pipeline(plan: Mapping[str, Any], where: str) -> None:
    """A pipeline as the C++ runtime (runtime/kitsune_runtime.h) gets it."""
    queues, at = plan["queues"], plan["outputs_at"]
    expect(at <= plan["pointers"], f"{where}.outputs_at must be at most {plan['pointers']}, found {at}")
    expect(plan["rows_of"] < at, f"{where}.rows_of must be below {at}, found {plan['rows_of']}")
    limits = {"resident": at, "load": at, "valid": 1}
    limits |= dict.fromkeys(("store", "whole"), plan["pointers"] - at)
    limits |= dict.fromkeys(("get", "put", "reduce", "accumulate"), len(queues))
    replicas: dict[int, int] = {}
    produced: set[int] = set()
    for i, stage in enumerate(plan["stages"]):
        named = f"{where}.stages[{i}]"
        same = replicas.setdefault(stage["role"], stage["replicas"]) == stage["replicas"]
        expect(same, f"{named}.replicas must be {replicas[stage['role']]}, as its role has")
        once = any(kind == "reduce" for kind, _, _ in stage["operands"])
        for kind, number, row_bytes in stage["operands"]:
            expect(number < limits[kind], f"{named} must have its {kind} below {limits[kind]}, found {number}")
            expect(row_bytes * plan["tile_rows"] <= 1 << 48, f"{named} must have smaller rows")
            allowed = ("resident", "reduce", "whole") if once else tuple(k for k in KINDS if k != "whole")
            expect(kind in allowed, f"{named} must not have a {kind}")
            if kind not in ("get", "put", "reduce", "accumulate"):
                continue
            sums = kind in ("reduce", "accumulate")
            expect(sums == (queues[number]["add"] is not None), f"{named} must not {kind} queue {number}")
            puts = kind in ("put", "accumulate")
            expect(puts != (number in produced), f"queue {number} of {where} must have one producer, before consumers")
            produced.add(number)
    expect(sum(replicas.values()) <= WORKERS, f"{where} must have at most {WORKERS} replicas in all")
