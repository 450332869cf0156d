"""@main after convert-linalg-to-gpu -> the host program: a list of steps, as plain JSON data.

A step is a dict; `op` says what it does, `to` names what it makes. A number stands for itself, a string
for an earlier `to`; the arguments of @main are "a0", "a1", ....

    {"op": "dim", "to": s, "of": buffer, "dim": n}          a size
    {"op": "arith.addi", "to": s, "args": [x, y], "types": ["i64", "i64", "i64"]}
                                                            a scalar: any operation of runtime/host_arithmetic.py;
                                                            types of its operands and of its result
    {"op": "alloc", "to": b, "dtype": "f32", "shape": [..]} a buffer, row-major
    {"op": "global", "to": b, "name": g}                    a constant of the model's code
    {"op": "view", "to": b, "of": buffer, "offset": n, "shape": [..], "strides": [..]}  in elements
    {"op": "metadata", "of": buffer, "base": b, "offset": s, "sizes": [s..], "strides": [s..]}
                                                            names what a view is made of
    {"op": "copy", "from": buffer, "into": buffer}          of the same contiguous layout
    {"op": "launch", "kernel": name, "grid": [x, y, z], "block": [x, y, z], "args": [buffer or [dtype, number] ..],
     "writes": [positions in args]}
    {"op": "pipeline", "name": name, "args": [buffer..], "results": [{"to": b, "dtype": .., "shape": ..}..]}
                                                            {"into": buffer} for a result that it writes among others
    {"op": "return", "values": [buffer..]}

A buffer argument of a kernel of the plain path is passed as its expanded memref descriptor: pointer twice,
offset, sizes, strides, each 64 bits; a pipeline's arguments are its launcher's business.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kitsune_mlir.errors import InternalError, UnsupportedError
from kitsune_mlir.example_sizes import SIZES_FROM, sizes_from
from kitsune_mlir.mlir import attr_int, func, ir, location, run_passes, walk
from kitsune_mlir.runtime.host_arithmetic import OPERATIONS

from .gpu_buffers import VIEWS, uses_of
from .gpu_kernel import dynamic_bytes
from .gpu_parts import is_dense
from .gpu_placed import into_of
from .hopper import cluster
from .outlined import callee

# On a pipeline's gpu.module: the function without a body whose calls it answers (symbols must differ, so it
# has another name), and how it is launched, JSON that only the runtime of pipelines interprets.
PIPELINE, LAUNCH = "kitsune.pipeline", "kitsune.launch"
CALL_OPERATIONS = ("gpu.launch_func", "memref.copy", "func.call")  # of @main, each of which is a step that is a call

Step = dict[str, Any]
Operand = int | float | str

_READS = (*VIEWS, "memref.load", "memref.dim", "vector.load")  # what writes to no buffer that it is given
_SIZES = "func.func(expand-strided-metadata,lower-affine,canonicalize,cse)"


def scalar_name(op: ir.Operation) -> str:
    """What runtime/host_arithmetic.py would call an operation: a comparison has its predicate at the end."""
    return f"{op.name}.{attr_int(op, 'predicate')}" if "predicate" in op.attributes else op.name


def host_program(module: ir.Module) -> list[Step]:
    """The steps of @main, whose view operations it expands to arithmetic first, in place.

    Raises UnsupportedError for an operation that the host cannot do.
    """
    functions = {op.opview.name.value: op.opview for op in walk(module, "func.func")}
    if "main" not in functions:
        raise InternalError("the module has no function @main")
    run_passes(functions["main"], _SIZES)
    return _Translation(functions, _kernels(module)).steps


def manifest_of(module: ir.Module) -> dict[str, Any]:
    """As much of a manifest (codegen/gpu.py) as shows what @main calls: its program, arguments, constants, pipelines.
    View operations of @main are expanded in place."""
    program = host_program(module)
    (main,) = (op for op in walk(module, "func.func") if op.opview.name.value == "main")
    inputs = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).inputs
    kinds = {
        ir.StringAttr(op.attributes["sym_name"]).value: ir.TypeAttr(op.attributes["type"]).value
        for op in walk(module, "memref.global")
    }
    known = {
        ir.StringAttr(op.attributes[PIPELINE]).value: {"launch": json.loads(ir.StringAttr(op.attributes[LAUNCH]).value)}
        for op in walk(module, "gpu.module")
        if LAUNCH in op.attributes
    }
    return {
        "program": program,
        "arguments": [described(kind) for kind in inputs],
        "globals": {name: described(kind) for name, kind in kinds.items()},
        "pipelines": {step["name"]: {"launch": {}} for step in program if step["op"] == "pipeline"} | known,
    }


class _Translation:
    """Names of values, and the steps so far."""

    def __init__(self, functions: dict[str, func.FuncOp], kernels: dict[str, ir.Operation]):
        self.steps: list[Step] = []
        self._functions, self._kernels = functions, kernels
        self._names: dict[int, Operand] = {}
        block = functions["main"].body.blocks[0]
        for i, argument in enumerate(block.arguments):
            self._names[hash(argument)] = f"a{i}"
        for op in block.operations:
            self._operation(op.operation)

    def _see(self, value: ir.Value) -> Operand:
        return self._names[hash(value)]

    def _all(self, values: Sequence[ir.Value]) -> list[Operand]:
        return [self._see(value) for value in values]

    def _name(self, value: ir.Value) -> str:
        name = f"v{len(self._names)}"
        self._names[hash(value)] = name
        return name

    def _step(self, op: str, **content: Any) -> None:
        self.steps.append({"op": op, **content})

    def _operation(self, op: ir.Operation) -> None:
        match op.name:
            case "arith.constant":
                self._names[hash(op.results[0])] = op.attributes["value"].value
            case "memref.cast":
                self._names[hash(op.results[0])] = self._see(op.operands[0])
            case "memref.dim":
                of, dim = self._all(op.operands)
                self._step("dim", to=self._name(op.results[0]), of=of, dim=dim)
            case "memref.alloc":
                shape = _mixed(ir.MemRefType(op.results[0].type).shape, iter(self._all(op.operands)))
                self._step("alloc", to=self._name(op.results[0]), dtype=dtype(op.results[0].type), shape=shape)
            case "memref.get_global":
                name = ir.FlatSymbolRefAttr(op.attributes["name"]).value
                self._step("global", to=self._name(op.results[0]), name=name)
            case "memref.reinterpret_cast":
                self._view(op)
            case "memref.extract_strided_metadata":
                self._metadata(op)
            case "memref.copy":
                if not all(is_dense(value.type) for value in op.operands):
                    raise InternalError(f"{location(op.location)}: no kernel copies {op.operands[0].type}")
                source, target = self._all(op.operands)
                self._step("copy", **{"from": source, "into": target})
            case "gpu.launch_func":
                self._launch(op)
            case "func.call":
                self._pipeline(op)
            case "func.return":
                self._step("return", values=self._all(op.operands))
            case _ if scalar_name(op) in OPERATIONS:
                types = [dtype(value.type) for value in (*op.operands, op.results[0])]
                arguments = self._all(op.operands)
                self._step(scalar_name(op), to=self._name(op.results[0]), args=arguments, types=types)
            case _:
                raise UnsupportedError(f"{location(op.location)}: {op.name} cannot run on the host of a GPU")

    def _view(self, op: ir.Operation) -> None:
        source, *dynamic = self._all(op.operands)
        rest = iter(dynamic)
        offset, shape, strides = (
            _mixed(list(ir.DenseI64ArrayAttr(op.attributes[f"static_{part}"])), rest)
            for part in ("offsets", "sizes", "strides")
        )
        self._step("view", to=self._name(op.results[0]), of=source, offset=offset[0], shape=shape, strides=strides)

    def _metadata(self, op: ir.Operation) -> None:
        of = self._see(op.operands[0])
        base, offset, *rest = (self._name(result) for result in op.results)
        rank = len(rest) // 2
        self._step("metadata", of=of, base=base, offset=offset, sizes=rest[:rank], strides=rest[rank:])

    def _launch(self, op: ir.Operation) -> None:
        # Operands: no asynchronous tokens, then grid, block, no cluster, no shared memory, arguments.
        values = list(op.operands)
        name = ir.SymbolRefAttr(op.attributes["kernel"]).value[-1]
        kernel = self._kernels[name]
        ctas, nbytes = cluster.size_of(kernel), dynamic_bytes(kernel)
        self._step(
            "launch",
            kernel=name,
            grid=self._all(values[:3]),
            block=self._all(values[3:6]),
            args=[self._argument(value) for value in values[6:]],
            writes=written(kernel),
            **{"cluster": ctas} if ctas > 1 else {},
            **{"shared_bytes": nbytes} if nbytes else {},
        )

    def _argument(self, value: ir.Value) -> Operand | list[Operand]:
        seen = self._see(value)
        return seen if isinstance(value.type, ir.MemRefType) else [dtype(value.type), seen]

    def _pipeline(self, op: ir.Operation) -> None:
        name = callee(op)
        places = into_of(self._functions[name].operation)
        arguments = self._all(op.operands)[: len(op.operands) - sum(place is not None for place in places)]
        results: list[dict[str, Any]] = []
        rows: dict[tuple[int, int], Operand] = {}
        for number, result in enumerate(op.results):
            kind = ir.MemRefType(result.type)
            dynamic = [d for d in range(kind.rank) if kind.is_dynamic_dim(d)]
            sources = sizes_from(self._functions[name].operation, number)
            if len(dynamic) != len(sources):
                raise InternalError(f"a result of pipeline {name} has a dynamic size that {SIZES_FROM} does not give")
            for source in sources:
                if source not in rows:
                    rows[source] = self._name_rows(op.operands[source[0]], source[1])
            shape = list(kind.shape)
            for d, source in zip(dynamic, sources, strict=True):
                shape[d] = rows[source]
            results.append({"to": self._name(result), "dtype": dtype(kind), "shape": shape})
        for number, place in enumerate(places):
            if place is not None:
                results.insert(number, {"into": self._see(op.operands[place])})
        self._step("pipeline", name=name, args=arguments, results=results)

    def _name_rows(self, value: ir.Value, axis: int) -> Operand:
        kind = ir.MemRefType(value.type)
        if not kind.is_dynamic_dim(axis):
            return kind.shape[axis]
        name = f"v{len(self._names)}"
        self._names[hash(name)] = name
        self._step("dim", to=name, of=self._see(value), dim=axis)
        return name


def _kernels(module: ir.Module) -> dict[str, ir.Operation]:
    """The kernels of the plain path, by name."""
    found = [op for part in walk(module, "gpu.module") for op in walk(part, "gpu.func")]
    return {ir.StringAttr(op.attributes["sym_name"]).value: op for op in found}


def written(kernel: ir.Operation) -> list[int]:
    """The positions of the buffers that a kernel may write: whatever it does not only load from."""
    given = len(ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).inputs)  # then shared memory
    arguments = enumerate(list(kernel.regions[0].blocks[0].arguments)[:given])
    buffers = [(i, argument) for i, argument in arguments if isinstance(argument.type, ir.MemRefType)]
    return [i for i, buffer in buffers if any(map(_may_write, uses_of(buffer)))]


def _may_write(use: ir.OpOperand) -> bool:
    """Whether a use of a buffer, or of a view of it, is more than a load."""
    return use.owner.operation.name not in _READS


def _mixed(static: Sequence[int], dynamic: Any) -> list[Operand]:
    """Static numbers, with the next of `dynamic` where one is dynamic."""
    mark = ir.ShapedType.get_dynamic_size()
    return [next(dynamic) if number == mark else number for number in static]


def dtype(kind: ir.Type) -> str:
    """The name of an element type, or of a memref's; an index is an i64."""
    element = ir.MemRefType(kind).element_type if isinstance(kind, ir.MemRefType) else kind
    return "i64" if isinstance(element, ir.IndexType) else str(element)


def described(kind: ir.MemRefType) -> dict[str, Any]:
    """A buffer as a manifest describes arguments: its shape, with None for a size that is open, and its dtype."""
    shape = [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
    return {"shape": shape, "dtype": dtype(kind)}
