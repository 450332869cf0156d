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

from kitsune_mlir.dialects.columns import Place, dense, is_among_columns, place_of
from kitsune_mlir.example_sizes import SIZES_FROM, sizes_from
from kitsune_mlir.mlir import attr_int, func, ir, memref, replace_op, walk
from kitsune_mlir.operations import made_by, operations_of, slice_of, users_of

from .gpu_buffers import VIEWS, ancestor_in, behind, is_alloc, root_of, uses_of, written
from .gpu_kernel import as_value
from .gpu_operands import agree, copied, erase_copy, rows_around, take_rows
from .gpu_parts import is_dense, lie_apart, needed
from .outlined import callee

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
    for op in walk(module, "func.call", "tensor.cast", "tensor.extract_slice"):
        for value in op.results:
            if is_among_columns(value.type):
                value.set_type(dense(value.type))
    for op in walk(module, "tensor.cast"):
        if op.results[0].type == op.operands[0].type:
            replace_op(op, op.operands[0])


def place(module: ir.Module, main: func.FuncOp) -> None:
    """Gives kernels the buffers that their operands and results lie in; `main` and functions are bufferized."""
    functions = {op.opview.name.value: op.opview for op in walk(module, "func.func")}
    with module.context:
        for call in operations_of(main.body.blocks[0], "func.call"):
            function = functions[callee(call)]
            if _READ in function.attributes or _WRITTEN in function.attributes:
                _place_call(call, function, functions)
        for function in functions.values():
            if _READ in function.attributes or _WRITTEN in function.attributes:
                _retype(function)
        kernels = {name: function for name, function in functions.items() if function.is_external}
        take_rows(main, {name: set(into_of(function.operation)) for name, function in kernels.items()})
        agree(main, kernels)


def into_of(function: ir.Operation) -> list[int | None]:
    """For each result of the kernel that a function stands for the number of the operand that it lies in, None for a
    result of the function; empty where all are such."""
    if INTO not in function.attributes:
        return []
    return [None if number < 0 else number for number in ir.DenseI64ArrayAttr(function.attributes[INTO])]


def _places(function: func.FuncOp, name: str) -> dict[int, Place]:
    flat = list(ir.DenseI64ArrayAttr(function.attributes[name])) if name in function.attributes else []
    return {flat[i]: Place(flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3)}


def _place_call(call: ir.Operation, function: func.FuncOp, functions: dict[str, func.FuncOp]) -> None:
    read, written = _places(function, _READ), _places(function, _WRITTEN)
    given, kept = list(call.operands), [n for n in range(len(call.results)) if n not in written]
    unread: list[ir.Operation] = []
    around: dict[tuple[int, Place], ir.Value] = {}  # of a tensor that is given twice, too
    with call.location:
        _ask_operands(call, function)
        keys = {number: (hash(given[number]), place) for number, place in read.items()}
        for number, (_, place) in keys.items():
            if keys[number] not in around:
                copy = copied(given[number])  # a view that was made dense for calls
                unread += [] if copy is None else [copy]
                whole = given[number] if copy is None else copy.operands[0]
                around[keys[number]] = _around(whole, place, call, functions)
            given[number] = around[keys[number]]
        for number, place in written.items():
            part = _target(call, number, place) or _alone(call, number, place, sizes_from(function.operation, number))
            given.append(part.owner.operands[0])
            result = call.results[number]
            for copy in users_of(result, "memref.copy"):
                if list(copy.operands) == [result, part]:
                    copy.erase()
            _hand_on(result, part, functions)
        with ir.InsertionPoint(call):
            made = func.CallOp([call.results[n].type for n in kept], function.name.value, given)
    for number, value in zip(kept, made.results):
        call.results[number].replace_all_uses_with(value)
    call.erase()
    for copy in unread:
        erase_copy(copy)


def _hand_on(result: ir.Value, part: ir.Value, functions: dict[str, func.FuncOp]) -> None:
    """Has what reads a dense tensor read the part of a buffer that it is: kernels that know where it lies, and
    operators; columns of it are columns of the buffer. Anything else is given a copy that is dense."""
    for use in list(result.uses):
        op = use.owner.operation
        view = _is_columns(op) or _is_column(op)
        if view and _finds(use, functions):
            made = _columns(op, part) if _is_columns(op) else _column(op, part)
            _hand_on(op.results[0], made, functions)
            op.erase()
        elif _finds(use, functions):
            op.operands[use.operand_number] = part
        else:
            with op.location, ir.InsertionPoint(op):
                kind = ir.MemRefType(result.type)
                rows = [memref.dim(part, as_value(0))] if kind.is_dynamic_dim(0) else []
                op.operands[use.operand_number] = memref.AllocOp(kind, rows, []).result
                memref.CopyOp(part, op.operands[use.operand_number])


def _finds(use: ir.OpOperand, functions: dict[str, func.FuncOp]) -> bool:
    """Whether what reads a tensor finds it among longer rows: a kernel that knows where it lies, any operator, and what
    reads a view of columns; but no other view, whose type says where elements lie."""
    op = use.owner.operation
    if _is_columns(op) or _is_column(op):
        return all(_finds(one, functions) for one in op.results[0].uses)
    if op.name == "func.call":
        function = functions[callee(op)]
        return use.operand_number in _places(function, _READ)
    return op.name == "memref.dim" or op.name not in VIEWS


def _is_columns(op: ir.Operation) -> bool:
    """Whether it is a view of some neighbouring columns of a tensor of rows and columns, all sizes known."""
    if op.name != "memref.subview" or ir.MemRefType(op.results[0].type).rank != 2:
        return False
    offsets, sizes, steps = slice_of(op)
    return steps == [1, 1] and ir.ShapedType.get_dynamic_size() not in (*offsets, *sizes)


def _is_column(op: ir.Operation) -> bool:
    """Whether it is a view of a tensor of one column as a vector."""
    if op.name != "memref.collapse_shape" or ir.MemRefType(op.results[0].type).rank != 1:
        return False
    return list(ir.MemRefType(op.operands[0].type).shape)[1:] == [1]


def _column(op: ir.Operation, part: ir.Value) -> ir.Value:
    """The same view of a part of a buffer."""
    (pitch, _), first = ir.MemRefType(part.type).get_strides_and_offset()
    kind = ir.MemRefType(op.results[0].type)
    type_ = ir.MemRefType.get(kind.shape, kind.element_type, ir.StridedLayoutAttr.get(first, [pitch]))
    with op.location, ir.InsertionPoint(op):
        return memref.CollapseShapeOp(type_, part, op.attributes["reassociation"]).result


def _columns(op: ir.Operation, part: ir.Value) -> ir.Value:
    """The same view of a part of a buffer."""
    offsets, sizes, steps = slice_of(op)
    with op.location, ir.InsertionPoint(op):
        return memref.subview(part, offsets, sizes, steps)


def _around(value: ir.Value, place: Place, call: ir.Operation, functions: dict[str, func.FuncOp]) -> ir.Value:
    """The longer rows that a tensor lies in. An allocation that others fill is made to lie so. What lies elsewhere for
    all that, as of a single row a view may, is copied."""
    if _may_move(value, place, functions):
        alloc = value.owner.operation
        with alloc.location, ir.InsertionPoint(alloc):
            part = _part_of_new(value, place, list(alloc.operands))
        _hand_on(value, part, functions)
        alloc.erase()
        value = part
    whole = value
    while made_by(whole, "memref.subview") is not None:
        whole = whole.owner.operands[0]
    longer = [ir.MemRefType(value.type).shape[0], place.pitch]
    if _lies(value, place) and is_dense(whole.type) and list(whole.type.shape) == longer:
        return whole
    with ir.InsertionPoint(call):
        if (longer := rows_around(value, place.first, place.pitch)) is not None:
            return longer
        open_ = ir.MemRefType(value.type).is_dynamic_dim(0)
        part = _part_of_new(value, place, [memref.dim(value, as_value(0))] if open_ else [])
        memref.CopyOp(value, part)
    return part.owner.operands[0]


def _may_move(value: ir.Value, place: Place, functions: dict[str, func.FuncOp]) -> bool:
    """Whether a tensor is an allocation whose rows may be longer: nobody returns it, and no kernel writes a part of it
    or wants it dense."""
    if place.first or not is_alloc(value):
        return False
    if not all(_finds(use, functions) for use in value.uses):
        return False
    waiting = [value]
    while waiting:
        for use in waiting.pop().uses:
            if use.owner.name == "func.return":
                return False
            waiting += use.owner.results if use.owner.name in VIEWS else []
    return True


def _lies(value: ir.Value, place: Place) -> bool:
    """Whether a view is of these columns of all rows of a buffer."""
    strides, offset = ir.MemRefType(value.type).get_strides_and_offset()
    return (list(strides), offset) == ([place.pitch, 1], place.first)


def _target(call: ir.Operation, number: int, place: Place) -> ir.Value | None:
    """The part of a buffer into which a result is copied, if it may be written there at once; it and what it is a part
    of come to stand in front of the call."""
    for copy in users_of(call.results[number], "memref.copy"):
        target = copy.operands[1]
        if copy.operands[0] != call.results[number] or not _lies(target, place) or copy.block != call.block:
            continue
        brought = needed(target, call)
        subview = target.owner.operation
        whole = subview.operands[0]
        if brought is None or subview.name != "memref.subview" or list(whole.type.shape)[1:] != [place.pitch]:
            continue
        leave = all(_leaves(op, target) for op in (call, *behind(call, copy)))
        if leave and _is_kept(call.results[number], copy, target):
            for op in brought:
                op.move_before(call)
            return target
    return None


def _is_kept(result: ir.Value, copy: ir.Operation, target: ir.Value) -> bool:
    """Whether the part of a buffer that a result is copied to stays what it is until the result has been read last: the
    buffer may be written again when nobody needs all of it any more, also by the last who reads the result, whose
    threads may read elements that others of them have written."""
    later = behind(copy)
    readers = [ancestor_in(copy.block, use.owner.operation) for use in uses_of(result)]
    last = max((later.index(op) for op in readers if op in later), default=-1)
    return not any(_meets(value, target) for op in later[: last + 1] for value in written(op))


def _meets(value: ir.Value, target: ir.Value) -> bool:
    """Whether two parts of buffers may have an element in common."""
    return root_of(value) == root_of(target) and not lie_apart(value, target)


def _leaves(op: ir.Operation, target: ir.Value) -> bool:
    """Whether an operation does not touch the part of a buffer: parts that are apart from it are others'."""
    touched = [value for inner in walk(op) for value in inner.operands if isinstance(value.type, ir.MemRefType)]
    if op.name.startswith("memref.") and op.name != "memref.copy":
        return True
    return not any(_meets(value, target) for value in touched)


def _ask_operands(call: ir.Operation, function: func.FuncOp) -> None:
    """Has the open sizes of a call's results asked of its operands, so that they are known before it."""
    for number, result in enumerate(call.results):
        kind = ir.MemRefType(result.type)
        for dim in users_of(result, "memref.dim"):
            axis = attr_int(dim.operands[1].owner, "value")
            source = sizes_from(function.operation, number)[sum(map(kind.is_dynamic_dim, range(axis)))]
            with ir.InsertionPoint(call):
                size = memref.dim(call.operands[source[0]], as_value(source[1]))
            replace_op(dim, size)


def _alone(call: ir.Operation, number: int, place: Place, sources: list[tuple[int, int]]) -> ir.Value:
    """A part of a buffer of its own, which has the open sizes of these operands' dimensions."""
    with ir.InsertionPoint(call):
        rows = [memref.dim(call.operands[operand], as_value(axis)) for operand, axis in sources]
        return _part_of_new(call.results[number], place, rows)


def _part_of_new(like: ir.Value, place: Place, rows: list[ir.Value]) -> ir.Value:
    """A part of a new buffer, of the shape of a buffer; `rows` are its rows where these are open."""
    kind = ir.MemRefType(like.type)
    whole = memref.AllocOp(ir.MemRefType.get([kind.shape[0], place.pitch], kind.element_type), rows, []).result
    layout = ir.StridedLayoutAttr.get(place.first, [place.pitch, 1])
    part = ir.MemRefType.get(kind.shape, kind.element_type, layout)
    static = [[0, place.first], [kind.shape[0], kind.shape[1]], [1, 1]]
    return memref.SubViewOp(part, whole, [], rows, [], *static).result


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
        if SIZES_FROM in function.attributes:
            sources = list(ir.ArrayAttr(function.attributes[SIZES_FROM]))
            left = [own for number, own in enumerate(sources) if number not in written]
            function.attributes[SIZES_FROM] = ir.ArrayAttr.get(left)
        function.attributes[INTO] = ir.DenseI64ArrayAttr.get([numbers.get(n, -1) for n in range(len(results))])
    for name in (_READ, _WRITTEN):
        if name in function.attributes:
            del function.attributes[name]


def _longer(kind: ir.Type, place: Place) -> ir.MemRefType:
    """The buffer that a tensor lies in."""
    kind = ir.MemRefType(kind)
    return ir.MemRefType.get([kind.shape[0], place.pitch], kind.element_type)
