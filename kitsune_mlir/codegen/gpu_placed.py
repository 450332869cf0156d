"""Tensors that kernels write and read among the columns of longer rows (passes/place_columns.py): what they lie in.

    %1 = func.call @k(%0) : (...) -> memref<16x512xf16>                %all = memref.alloc() : memref<16x872xf16>
    ...                                                                func.call @k(%0, %all)
    %all = memref.alloc() : memref<16x872xf16>                  =>     %part = memref.subview %all[0, 0] [16, 512] ...
    %part = memref.subview %all[0, 0] [16, 512] [1, 1]                 ...        // what has read %1 reads %part
    memref.copy %1, %part

While tensors are tensors, functions that stand for kernels say by an attribute which of their operands and results lie
so, and their types are plain (`mark`). Once they are buffers (`place`) such a kernel is given all of the longer rows:
the buffer into which its result would be copied where nothing else touches that part before, else one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir.dialects.columns import Place, dense, is_among_columns, place_of
from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import func, ir, location, memref, walk

from .gpu_buffers import root_of
from .gpu_kernel import as_value
from .gpu_parts import are_apart, needed

# Attributes of functions: numbers of operands and results, each with the columns' first and the rows' length.
_READ, _WRITTEN = "kitsune.reads_columns", "kitsune.writes_columns"
INTO = "kitsune.into"  # for each result of a kernel the number of the operand that it lies in, or -1


def mark(module: ir.Module) -> None:
    """Gives tensors among longer rows plain types, and says at the kernels' functions where they lie."""
    for function in [op.opview for op in walk(module, "func.func")]:
        kinds = [function.type.inputs, function.type.results]
        for name, part in zip((_READ, _WRITTEN), kinds):
            found = [(n, place_of(kind)) for n, kind in enumerate(part) if is_among_columns(kind)]
            if found:
                flat = [number for n, place in found for number in (n, place.first, place.pitch)]
                function.attributes[name] = ir.DenseI64ArrayAttr.get(flat, module.context)
        plain = [[dense(kind) if is_among_columns(kind) else kind for kind in part] for part in kinds]
        if function.is_external and plain != [list(part) for part in kinds]:
            type_ = ir.FunctionType.get(*plain, context=module.context)
            function.attributes["function_type"] = ir.TypeAttr.get(type_)
    for op in walk(module, "func.call", "tensor.cast"):
        for value in op.results:
            if is_among_columns(value.type):
                value.set_type(dense(value.type))
    for op in walk(module, "tensor.cast"):
        if op.results[0].type == op.operands[0].type:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def place(module: ir.Module, main: func.FuncOp) -> None:
    """Gives kernels the buffers that their operands and results lie in; `main` and functions are bufferized."""
    functions = {op.opview.name.value: op.opview for op in walk(module, "func.func")}
    with module.context:
        for call in [op.operation for op in main.body.blocks[0].operations if op.operation.name == "func.call"]:
            function = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
            if _READ in function.attributes or _WRITTEN in function.attributes:
                _place_call(call, function)
        for function in functions.values():
            if _READ in function.attributes or _WRITTEN in function.attributes:
                _retype(function)


def into_of(function: ir.Operation) -> list[int | None]:
    """For each result of the kernel that a function stands for the number of the operand that it lies in, None for a
    result of the function; empty where all are such."""
    if INTO not in function.attributes:
        return []
    return [None if number < 0 else number for number in ir.DenseI64ArrayAttr(function.attributes[INTO])]


def _places(function: func.FuncOp, name: str) -> dict[int, Place]:
    flat = list(ir.DenseI64ArrayAttr(function.attributes[name])) if name in function.attributes else []
    return {flat[i]: Place(flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3)}


def _place_call(call: ir.Operation, function: func.FuncOp) -> None:
    read, written = _places(function, _READ), _places(function, _WRITTEN)
    given, kept = list(call.operands), [n for n in range(len(call.results)) if n not in written]
    with call.location:
        for number, place in read.items():
            given[number] = _around(given[number], place, call)
        for number, place in written.items():
            part = _target(call, number, place) or _alone(call, number, place)
            given.append(part.owner.operands[0])
            result = call.results[number]
            for copy in [use.owner.operation for use in result.uses if use.owner.name == "memref.copy"]:
                if list(copy.operands) == [result, part]:
                    copy.erase()
            for use in list(result.uses):
                use.owner.operands[use.operand_number] = part
        with ir.InsertionPoint(call):
            made = func.CallOp([call.results[n].type for n in kept], function.name.value, given)
    for number, value in zip(kept, made.results):
        call.results[number].replace_all_uses_with(value)
    call.erase()


def _around(value: ir.Value, place: Place, call: ir.Operation) -> ir.Value:
    """The longer rows that a tensor lies in."""
    op = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if op is None or op.name != "memref.subview" or not _lies(value, place):
        raise InternalError(f"{location(call.location)}: {value.type} does not lie in rows of {place.pitch} elements")
    return op.operands[0]


def _lies(value: ir.Value, place: Place) -> bool:
    """Whether a view is of these columns of all rows of a buffer."""
    strides, offset = ir.MemRefType(value.type).get_strides_and_offset()
    return (list(strides), offset) == ([place.pitch, 1], place.first)


def _target(call: ir.Operation, number: int, place: Place) -> ir.Value | None:
    """The part of a buffer into which a result is copied, if it may be written there at once; it and what it is a part
    of come to stand in front of the call."""
    order = {op.operation: n for n, op in enumerate(call.block.operations)}
    for copy in [use.owner.operation for use in call.results[number].uses if use.owner.name == "memref.copy"]:
        target = copy.operands[1]
        if copy.operands[0] != call.results[number] or not _lies(target, place) or copy.block != call.block:
            continue
        brought = needed(target, order[call], order)
        subview = target.owner.operation
        whole = subview.operands[0]
        if brought is None or subview.name != "memref.subview" or list(whole.type.shape)[1:] != [place.pitch]:
            continue
        if all(_leaves(op, target) for op in _between(call, copy)):
            for op in brought:
                op.move_before(call)
            return target
    return None


def _between(first: ir.Operation, last: ir.Operation) -> Iterator[ir.Operation]:
    operations = [op.operation for op in first.block.operations]
    yield from operations[operations.index(first) : operations.index(last)]


def _leaves(op: ir.Operation, target: ir.Value) -> bool:
    """Whether an operation does not touch the part of a buffer: parts that are apart from it are others'."""
    touched = [value for inner in walk(op) for value in inner.operands if isinstance(value.type, ir.MemRefType)]
    if op.name.startswith("memref.") and op.name != "memref.copy":
        return True
    return all(root_of(value) != root_of(target) or are_apart(value.type, target.type) for value in touched)


def _alone(call: ir.Operation, number: int, place: Place) -> ir.Value:
    """A part of a buffer of its own."""
    kind = ir.MemRefType(call.results[number].type)
    with ir.InsertionPoint(call):
        open_ = kind.is_dynamic_dim(0)
        rows = [memref.dim(call.operands[_rows_from(call)], as_value(0))] if open_ else []
        whole = memref.AllocOp(ir.MemRefType.get([kind.shape[0], place.pitch], kind.element_type), rows, []).result
        layout = ir.StridedLayoutAttr.get(place.first, [place.pitch, 1])
        part = ir.MemRefType.get(kind.shape, kind.element_type, layout)
        static = [[0, place.first], [kind.shape[0], kind.shape[1]], [1, 1]]
        return memref.SubViewOp(part, whole, [], rows, [], *static).result


def _rows_from(call: ir.Operation) -> int:
    """The operand of a call whose first size is the call's."""
    kinds = [value.type for value in call.operands]
    return next(n for n, kind in enumerate(kinds) if kind.rank and ir.MemRefType(kind).is_dynamic_dim(0))


def _retype(function: func.FuncOp) -> None:
    """Gives a function the operands that its calls have now, and says which its results lie in."""
    read, written = _places(function, _READ), _places(function, _WRITTEN)
    inputs, results = list(function.type.inputs), list(function.type.results)
    kinds = [_longer(kind, read[n]) if n in read else kind for n, kind in enumerate(inputs)]
    numbers = {n: len(kinds) + i for i, n in enumerate(written)}
    kinds += [_longer(results[n], place) for n, place in written.items()]
    kept = [kind for n, kind in enumerate(results) if n not in written]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, kept))
    if written:
        function.attributes[INTO] = ir.DenseI64ArrayAttr.get([numbers.get(n, -1) for n in range(len(results))])
    for name in (_READ, _WRITTEN):
        if name in function.attributes:
            del function.attributes[name]


def _longer(kind: ir.Type, place: Place) -> ir.MemRefType:
    """The buffer that a tensor lies in."""
    kind = ir.MemRefType(kind)
    return ir.MemRefType.get([kind.shape[0], place.pitch], kind.element_type)
