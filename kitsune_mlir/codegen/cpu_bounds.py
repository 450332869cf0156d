"""Indices and divisors that data provides: kept where the machine can take them, and reported when they were not.

A gather reads a tensor in a linalg.generic's body at an index made from an input; a scatter
(tm_tensor.scatter) writes where an index tensor says. Both get their indices clamped, so that no memory
but the tensor's is touched, and a check beside them: a sum-like reduction over the index tensor that gives
1 when some index was outside. The checks become further results of @main, which the runner looks at.

An integer division by zero, or of the least number by -1, ends the process on x86. Such a divisor is 1 instead,
which is what the second wants; zero is reported too, except in the stage of a pipeline, which has no checks.
"""

from __future__ import annotations

from collections.abc import Callable

from kitsune_mlir.generics import empty_generic, generic
from kitsune_mlir.mlir import arith, func, ir, linalg, location, tensor, walk
from kitsune_mlir.operations import end_of, made_by, operations_of

from .cpu_build import index

_DIVISIONS = {f"arith.{name}{sign}" for name in ("div", "rem", "floordiv", "ceildiv") for sign in ("si", "ui")}
CHECKS = "kitsune.checks"


def guard_indices(main: func.FuncOp) -> list[str]:
    """Guards the gathers and scatters of a function on tensors.

    Its new results, one tensor<i32> a check, follow the others; returned is what to say when one is not 0.
    """
    checks: list[tuple[ir.Value, str]] = []
    for op in walk(main, "linalg.generic"):
        for extract in _extracts(op):
            checks += _guard_gather(op, extract)
    for op in walk(main, "tm_tensor.scatter"):
        checks.append(_guard_scatter(op))
    _return_too(main, [flag for flag, _ in checks])
    return [message for _, message in checks]


def check_gathers(main: func.FuncOp, generics: list[ir.Operation]) -> None:
    """Adds the checks of these gathers to the results of @main, and to its attribute CHECKS what they mean."""
    checks: list[tuple[ir.Value, str]] = []
    for op in generics:
        for extract in _extracts(op):
            checks += _guard_gather(op, extract)
    if checks:
        _return_too(main, [flag for flag, _ in checks])
        messages = [*checks_of(main), *(message for _, message in checks)]
        with main.context:
            main.attributes[CHECKS] = ir.ArrayAttr.get([ir.StringAttr.get(message) for message in messages])


def checks_of(main: func.FuncOp) -> list[str]:
    """What the last results of @main mean, which `check_gathers` added."""
    if CHECKS not in main.attributes:
        return []
    return [ir.StringAttr(message).value for message in ir.ArrayAttr(main.attributes[CHECKS])]


def clamp_gathers(op: ir.Operation) -> None:
    """Clamps the indices of a generic of a stage, which has no checks."""
    for extract in _extracts(op):
        for axis, size in _computed_axes(op, extract):
            with op.context, op.location, ir.InsertionPoint(extract):
                extract.operands[axis + 1] = _clamp(extract.operands[axis + 1], size)


def _extracts(op: ir.Operation) -> list[ir.Operation]:
    inside = operations_of(op.regions[0].blocks[0])
    return [inner for inner in inside if inner.name == "tensor.extract"]


def _computed_axes(op: ir.Operation, extract: ir.Operation) -> list[tuple[int, ir.Value]]:
    """The axes that an element is taken at by a computed index, and their sizes."""
    found = []
    for axis, value in enumerate(list(extract.operands)[1:]):
        if made_by(value, "linalg.index", "arith.constant") is None:
            with op.context, op.location, ir.InsertionPoint(op):
                found.append((axis, _size(extract.operands[0], axis)))
    return found


def guard_divisors(module: ir.Module, main: func.FuncOp) -> list[str]:
    """Guards the integer divisions of a module on tensors, and those of open sizes, of which any may be none; its
    results are those of `guard_indices`."""
    checks: list[tuple[ir.Value, str]] = []
    for op in operations_of(main.body.blocks[0]):
        if op.name in _DIVISIONS and not _is_constant(op.operands[1]):
            with op.context, op.location, ir.InsertionPoint(op):
                op.operands[1] = _safe_divisor(*op.operands)
    for op in walk(module, "linalg.generic"):
        for division in operations_of(op.regions[0].blocks[0]):
            if division.name not in _DIVISIONS or _is_constant(division.operands[1]):
                continue
            with op.context, op.location:
                flag = _check(op, division.operands[1], _is_zero)
                if flag is not None and op.parent == main.operation:
                    checks.append((flag, f"{location(op.location)}: an integer is divided by zero"))
                with ir.InsertionPoint(division):
                    division.operands[1] = _safe_divisor(*division.operands)
    _return_too(main, [flag for flag, _ in checks])
    return [message for _, message in checks]


def _is_constant(divisor: ir.Value) -> bool:
    return made_by(divisor, "arith.constant") is not None


def _is_zero(divisor: ir.Value) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, divisor, arith.constant(divisor.type, 0))


def _safe_divisor(dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    kind = divisor.type
    bad = _is_zero(divisor)
    if isinstance(kind, ir.IntegerType):
        least = arith.cmpi(arith.CmpIPredicate.eq, dividend, arith.constant(kind, -(2 ** (kind.width - 1))))
        minus_one = arith.cmpi(arith.CmpIPredicate.eq, divisor, arith.constant(kind, -1))
        bad = arith.ori(bad, arith.andi(least, minus_one))
    return arith.select(bad, arith.constant(kind, 1), divisor)


def _guard_gather(op: ir.Operation, extract: ir.Operation) -> list[tuple[ir.Value, str]]:
    checks = []
    for axis, size in _computed_axes(op, extract):
        value = extract.operands[axis + 1]
        with op.context, op.location:
            flag = _check(op, value, lambda index, size=size: _is_outside(index, size))
            if flag is not None:
                checks.append((flag, f"{location(op.location)}: an index is out of range"))
            with ir.InsertionPoint(extract):
                extract.operands[axis + 1] = _clamp(value, size)
    return checks


def _check(op: ir.Operation, value: ir.Value, is_wrong: Callable[[ir.Value], ir.Value]) -> ir.Value | None:
    """A check that computes a value of the body once for each element of the inputs it comes from; None where
    it comes from more than inputs."""
    block = op.regions[0].blocks[0]
    made, arguments = _slice(value, block)
    if arguments is None or max(arguments, default=len(op.operands)) >= len(op.operands) - len(op.results):
        return None
    maps = [attr.value for attr in op.attributes["indexing_maps"]]
    used: list[int] = []
    for number in arguments:
        for expression in maps[number].results:
            if isinstance(expression, ir.AffineConstantExpr):
                continue
            if not isinstance(expression, ir.AffineDimExpr):
                return None
            if expression.position not in used:
                used.append(expression.position)
    order = {loop: ir.AffineDimExpr.get(i) for i, loop in enumerate(used)}
    layouts = [
        ir.AffineMap.get(
            len(used), 0, [order[e.position] if isinstance(e, ir.AffineDimExpr) else e for e in own.results]
        )
        for own in (maps[number] for number in arguments)
    ]
    with ir.InsertionPoint(op):
        check = _reduction([op.operands[number] for number in arguments], layouts, len(used))
        inner = check.owner.regions[0].blocks[0]
        with ir.InsertionPoint(inner):
            clones = {hash(block.arguments[number]): inner.arguments[i] for i, number in enumerate(arguments)}
            for step in made:
                clone = step.clone(ir.InsertionPoint.current)
                for i, operand in enumerate(step.operands):
                    clone.operands[i] = clones.get(hash(operand), operand)
                clones.update((hash(old), new) for old, new in zip(step.results, clone.results, strict=True))
            _yield_or(inner.arguments[len(arguments)], is_wrong(clones[hash(value)]))
    return check


def _slice(value: ir.Value, block: ir.Block) -> tuple[list[ir.Operation], list[int] | None]:
    """The operations of `block` that make `value`, in order, and the arguments they start from (None when
    they start from anything else that changes with the loops)."""
    needed, arguments, stack = set(), set(), [value]
    while stack:
        current = stack.pop()
        if isinstance(current.owner, ir.Block):
            if current.owner == block:
                arguments.add(ir.BlockArgument(current).arg_number)
            continue
        owner = current.owner.operation
        if owner.block != block:
            continue
        if owner.name in ("linalg.index", "tensor.extract"):
            return [], None
        needed.add(owner)
        stack.extend(owner.operands)
    return [op.operation for op in block.operations if op.operation in needed], sorted(arguments)


def _guard_scatter(op: ir.Operation) -> tuple[ir.Value, str]:
    """Columns of the index tensor are dimensions of the target, in the order of `dimension_map`."""
    indices, target = op.operands[1], op.operands[2]
    with op.context, op.location, ir.InsertionPoint(op):
        kind, identity = ir.RankedTensorType(indices.type), ir.AffineMap.get_identity(2)
        sizes = [_size(target, axis) for axis in ir.DenseI64ArrayAttr(op.attributes["dimension_map"])]
        check = _reduction([indices], [identity], 2)
        inner = check.owner.regions[0].blocks[0]
        with ir.InsertionPoint(inner):
            value = arith.index_cast(ir.IndexType.get(), inner.arguments[0])
            _yield_or(inner.arguments[1], _is_outside(value, _column(sizes)))
        empty = tensor.empty([_extent(indices, d) for d in range(2)], kind.element_type)

        def inside(number: ir.Value, _: ir.Value) -> ir.Value:
            value = _clamp(arith.index_cast(ir.IndexType.get(), number), _column(sizes))
            return arith.index_cast(kind.element_type, value)

        op.operands[1] = generic([indices], [empty], [identity, identity], ["parallel"] * 2, inside).results[0]
    return check, f"{location(op.location)}: an index is out of range"


def _column(sizes: list[ir.Value]) -> ir.Value:
    """The size that belongs to the current column of an index tensor."""
    chosen = sizes[-1]
    for number, size in enumerate(sizes[:-1]):
        here = arith.cmpi(arith.CmpIPredicate.eq, linalg.IndexOp(1).result, index(number))
        chosen = arith.select(here, size, chosen)
    return chosen


def _size(source: ir.Value, axis: int) -> ir.Value:
    kind = ir.RankedTensorType(source.type)
    return tensor.dim(source, index(axis)) if kind.is_dynamic_dim(axis) else index(kind.shape[axis])


def _extent(source: ir.Value, axis: int) -> ir.Value | int:
    kind = ir.RankedTensorType(source.type)
    return tensor.dim(source, index(axis)) if kind.is_dynamic_dim(axis) else kind.shape[axis]


def _clamp(value: ir.Value, size: ir.Value) -> ir.Value:
    last = arith.subi(size, index(1))
    return arith.maxsi(arith.minsi(value, last), index(0))


def _is_outside(value: ir.Value, size: ir.Value) -> ir.Value:
    """One unsigned comparison finds negative indices too."""
    return arith.cmpi(arith.CmpIPredicate.uge, value, size)


def _yield_or(before: ir.Value, wrong: ir.Value) -> None:
    linalg.YieldOp([arith.ori(before, arith.extui(before.type, wrong))])


def _reduction(inputs: list[ir.Value], maps: list[ir.AffineMap], loops: int) -> ir.Value:
    """What a generic reduces to one i32, from 0; its body is still to be filled."""
    flag = ir.IntegerType.get_signless(32)
    start = linalg.fill(arith.constant(flag, 0), outs=[tensor.empty([], flag)])
    return empty_generic(inputs, [start], [*maps, ir.AffineMap.get(loops, 0, [])], ["reduction"] * loops).results[0]


def _return_too(main: func.FuncOp, values: list[ir.Value]) -> None:
    if not values:
        return
    block = main.body.blocks[0]
    end = end_of(block)
    with main.context, end.location:
        func.ReturnOp([*end.operands, *values], ip=ir.InsertionPoint(end))
        results = [*main.type.results, *(value.type for value in values)]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(main.type.inputs, results))
        if "res_attrs" in main.attributes:
            del main.attributes["res_attrs"]
    end.erase()
