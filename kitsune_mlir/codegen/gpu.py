"""The GPU target's share of an artifact: PTX, cubins and the host program that `GpuRunner` interprets."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import Any

from kitsune_mlir import worker
from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import clone, ir, location, walk
from kitsune_mlir.planning.target import Target
from kitsune_mlir.runtime.host_program import BYTES

from . import index_checks, ptxas
from .constant_bytes import content_of
from .host_program import LAUNCH, PIPELINE, described, dtype, host_program
from .ptx import to_ptx
from .section import Section, seal

VERSION = 5


def build(module: ir.Module, target: Target) -> Section:
    """Generates code for a module after convert-linalg-to-gpu, which it does not change.

    Manifest: `arguments`, `results` (shape with null for a dynamic size, dtype), `program` (see host_program.py),
    `globals` ("globals.bin": name -> offset, dtype, shape), `modules` (name -> kernels), `kernels` (a list;
    `overlapped`: it waits itself for the one before it, see overlap-launches; what ptxas says of each, null without a
    ptxas), `pipelines` (name -> module, launch); pipelines whose kernels are equal share a module; `checks`, if there
    are any (module -> where its checks of row numbers stand, see index_checks.py).
    Files: "NAME.ptx" for each module, "NAME.cubin" when there is a ptxas, "globals.bin".
    """
    worker.warm_up()
    module = clone(module)
    program = host_program(module)
    main = next(op.opview for op in walk(module, "func.func") if op.opview.name.value == "main")
    table, data = _globals(module)
    manifest: dict[str, Any] = {
        "kind": "gpu",
        "version": VERSION,
        "target": target.name,
        "chip": target.chip,
        "arguments": [described(kind) for kind in main.type.inputs],
        "results": [described(kind) for kind in main.type.results],
        "program": program,
        "globals": table,
        "modules": {},
        "kernels": [],
        "pipelines": {},
    }
    files = {"globals.bin": data} if data else {}
    generated: dict[str, str] = {}
    assembled: list[tuple[str, list[ir.Operation], Future[ptxas.Assembled | None]]] = []
    modules = walk(module, "gpu.module")
    lengths = Counter(len(walk(op)) for op in modules if PIPELINE in op.attributes)  # equal kernels are equally long
    with ThreadPoolExecutor() as pool:  # ptxas assembles one module while PTX of the next is generated
        for op in modules:
            kernels = [kernel for kernel in walk(op, "gpu.func", "llvm.func") if _is_kernel(kernel)]
            if not kernels:
                continue
            name = ir.StringAttr(op.attributes["sym_name"]).value
            alone = PIPELINE not in op.attributes or lengths[len(walk(op))] == 1
            code = name if alone else _anonymous(op, kernels)
            places = index_checks.places_of(op)
            if code in generated and places:
                checks = manifest["checks"]
                checks[generated[code]] = index_checks.alternatives(checks[generated[code]], places)
            if code not in generated:
                generated[code] = name
                if places:
                    manifest.setdefault("checks", {})[name] = places
                manifest["modules"][name] = [ir.StringAttr(kernel.attributes["sym_name"]).value for kernel in kernels]
                text = to_ptx(op, target)
                files[f"{name}.ptx"] = text.encode()
                assembled.append((name, kernels, pool.submit(ptxas.assemble, text, target)))
            if PIPELINE in op.attributes:
                _pipeline(op, generated[code], manifest)
        for name, kernels, result in assembled:
            _describe_kernels(name, kernels, result.result(), manifest, files)
    return seal(Section(manifest, files))


def _anonymous(op: ir.Operation, kernels: list[ir.Operation]) -> str:
    """A gpu.module as text without its names, its places in the model and its launch: equal for equal code."""
    text = op.get_asm(use_local_scope=True, assume_verified=True)
    names = [ir.StringAttr(named.attributes["sym_name"]).value for named in (op, *kernels)]
    for number, name in enumerate(names):
        text = re.sub(rf"@{re.escape(name)}\b", f"@{number}", text)
    for key in {PIPELINE, LAUNCH, index_checks.CHECKS} & {attribute for attribute in op.attributes}:
        text = text.replace(f"{key} = {op.attributes[key]}", key, 1)
    return text


def _pipeline(op: ir.Operation, module: str, manifest: dict[str, Any]) -> None:
    """Adds a pipeline whose kernel is that of `module`, its own or one that is equal."""
    pipeline, launch = (ir.StringAttr(op.attributes[key]).value for key in (PIPELINE, LAUNCH))
    found = json.loads(launch)
    if "kernel" in found:
        (found["kernel"],) = manifest["modules"][module]
    manifest["pipelines"][pipeline] = {"module": module, "launch": found}


def _describe_kernels(
    name: str,
    kernels: list[ir.Operation],
    assembled: ptxas.Assembled | None,
    manifest: dict[str, Any],
    files: dict[str, bytes],
) -> None:
    """Adds the kernels of module `name` to the manifest and, if there is one, its cubin to the files."""
    if assembled is not None:
        files[f"{name}.cubin"] = assembled.cubin
    for label, kernel in zip(manifest["modules"][name], kernels, strict=True):
        info = None if assembled is None else dataclasses.asdict(assembled.kernels[label])
        overlapped = any("wait" in str(op.attributes["kind"]) for op in walk(kernel, "nvvm.griddepcontrol"))
        entry = {"name": label, "module": name, "origin": location(kernel.location), "overlapped": overlapped}
        manifest["kernels"].append({**entry, **(info or {"registers": None, "shared": None})})


def _is_kernel(function: ir.Operation) -> bool:
    return "gpu.kernel" in function.attributes or "kernel" in function.attributes


def _globals(module: ir.Module) -> tuple[dict[str, Any], bytes]:
    """Where each memref.global lies in "globals.bin", and its bytes."""
    table: dict[str, Any] = {}
    data = b""
    for op in walk(module, "memref.global"):
        name = ir.StringAttr(op.attributes["sym_name"]).value
        kind = ir.MemRefType(ir.TypeAttr(op.attributes["type"]).value)
        content = content_of(op.attributes["initial_value"])
        if len(content) != prod(kind.shape) * BYTES[dtype(kind)]:
            raise InternalError(f"the constant {name} of {kind} has {len(content)} bytes")
        data += b"\0" * (-len(data) % 256)
        table[name] = {"offset": len(data), "dtype": dtype(kind), "shape": list(kind.shape)}
        data += content
    return table, data
