"""Casts between f32 and 16-bit types, and of integers to wider ones: into the generics beside them, so that none stands
alone.

A cast on its own is a pass over a tensor for nothing. A consumer's body can cast what it reads, a producer's what it
yields, which it does where one consumer takes a rounded number: what may lie in memory between them is narrow then.
What several read of a convolution stays narrow, too: its kernel rounds it.
A layer of f32 that both operands are made wide for multiplies them as they are: products of 16-bit numbers are exact
in f32, in which tensor cores add them up. Of very long sums what these cut off would show.
`scalar_bodies.widen` drops a rounding that is undone at once. A tensor of which only parts are read is cast part by
part, by their readers. Integers are cast by who reads them, such as gathers whose row numbers have 32 bits.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, ir, linalg, replace_op, tensor
from kitsune_mlir.operations import element_type, end_of, is_generic, made_by
from kitsune_mlir.weights import is_weight

_WIDENING = ("arith.extf", "arith.extsi")
_CASTS = (*_WIDENING, "arith.truncf")
_LONGEST = 4096  # sum of products, each 16 of which tensor cores add with an error of a bit of f32


def absorb_cast(cast: ir.Operation) -> None:
    """Moves a generic that is only a cast into its users (where they are generics) or its producer."""
    if not _is_cast(cast):
        return
    source, uses = cast.operands[0], list(cast.results[0].uses)
    cuts = [use.owner.operation for use in uses if use.owner.operation.name == "tensor.extract_slice"]
    if cuts and _widens(cast) and len(cuts) + sum(map(_reads, uses)) == len(uses):
        for sunk in [_sink(cast, cut) for cut in cuts]:
            absorb_cast(sunk)
        if len(cuts) == len(uses):
            cast.erase()
        else:
            absorb_cast(cast)
    elif _scalar_cast(cast).name == "arith.truncf" and len(uses) == 1 and _can_yield(source):
        _yield(source.owner, cast)
    elif uses and all(_reads(use) for use in uses) and not (len(uses) > 1 and _is_of_convolution(cast)):
        for use in uses:
            _read(use.owner.operation, use.operand_number, source, cast)
        cast.erase()
    elif _scalar_cast(cast).name != "arith.extsi" and _can_yield(source):
        _yield(source.owner, cast)


def multiply_narrow(product: ir.Operation) -> ir.Operation:
    """Has a linalg.matmul with a weight, or of integers, take both operands as they are before they are made wide, if
    both are. Gives what stands in its place."""
    make = {"linalg.matmul": linalg.matmul, "linalg.batch_matmul": linalg.batch_matmul}.get(product.name)
    if make is None:
        return product
    sources = [source for value in list(product.operands)[:2] if (source := _before_widening(value)) is not None]
    kinds = {element_type(source) for source in sources}
    if len(sources) < 2 or not (is_weight(product.operands[1]) or all(map(_has_integers, sources))):
        return product
    if len(kinds) > 1 or not 0 < rows.shape_of(product.operands[0])[-1] <= _LONGEST:
        return product
    with product.location, ir.InsertionPoint(product):
        factors = [_viewed(source, value) for source, value in zip(sources, product.operands)]
        made = make(*factors, outs=[product.operands[2]], indexing_maps=product.attributes["indexing_maps"])
    replace_op(product, made)
    return made.owner.operation


def _viewed(source: ir.Value, value: ir.Value) -> ir.Value:
    """A tensor with its dimensions joined as those of what is made of it are."""
    view = rows.producer(value)
    if view.name != "tensor.collapse_shape":
        return source
    kind = ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, element_type(source))
    return tensor.CollapseShapeOp(kind, source, rows.groups_of(view)).result


def _before_widening(value: ir.Value) -> ir.Value | None:
    """The tensor of 16-bit floats that a tensor of f32 is, perhaps with dimensions joined; None where it is none."""
    op = rows.producer(value)
    if op is not None and op.name == "tensor.collapse_shape":
        op = rows.producer(op.operands[0])
    if op is None or op.name != "linalg.generic" or not _is_cast(op) or _scalar_cast(op).name != "arith.extf":
        return None
    kinds = [element_type(each) for each in (op.operands[0], op.results[0])]
    narrow = isinstance(kinds[0], ir.BF16Type | ir.F16Type) and isinstance(kinds[1], ir.F32Type)
    return op.operands[0] if narrow else None


def _has_integers(value: ir.Value) -> bool:
    """Whether a tensor of floats, or what it is a part of, is made of integers."""
    op = rows.producer(value)
    while op is not None and op.name in ("tensor.extract_slice", "linalg.transpose", *rows.RESHAPES):
        op = rows.producer(op.operands[0])
    if op is None or op.name != "linalg.generic":
        return False
    given = made_by(op.regions[0].blocks[0].operations[-1].operands[0], "arith.sitofp", "arith.uitofp")
    return given is not None


def _is_cast(generic: ir.Operation) -> bool:
    """Whether all it does is a cast element by element, in place."""
    operations = list(generic.regions[0].blocks[0].operations)
    if len(generic.operands) != 2 or len(operations) != 2 or operations[0].name not in _CASTS:
        return False
    argument = generic.regions[0].blocks[0].arguments[0]
    maps = rows.Structured(generic).maps
    casts = operations[0].operands[0] == argument and operations[1].operands[0] == operations[0].results[0]
    return casts and maps[0] == maps[1] == ir.AffineMap.get_identity(maps[0].n_dims)


def _is_of_convolution(cast: ir.Operation) -> bool:
    """Whether a cast rounds what a convolution gives."""
    maker = rows.producer(cast.operands[0])
    return _scalar_cast(cast).name == "arith.truncf" and maker is not None and maker.name.startswith("linalg.conv")


def _widens(cast: ir.Operation) -> bool:
    return _scalar_cast(cast).name in _WIDENING


def _sink(cast: ir.Operation, part: ir.Operation) -> ir.Operation:
    """Takes the part of what is cast, and casts that: what lies in memory between operators is narrow."""
    wide = ir.RankedTensorType(part.results[0].type)
    narrow = element_type(cast.operands[0])
    with part.location, ir.InsertionPoint(part):
        cut = part.clone()
        cut.operands[0] = cast.operands[0]
        cut.results[0].set_type(ir.RankedTensorType.get(wide.shape, narrow))
        sizes = [
            tensor.dim(cut.results[0], arith.ConstantOp.create_index(d).result)
            if wide.is_dynamic_dim(d)
            else wide.shape[d]
            for d in range(wide.rank)
        ]
        start = tensor.empty(sizes, wide.element_type)
        sunk = cast.clone()
        sunk.operands[0], sunk.operands[1] = cut.results[0], start
        sunk.results[0].set_type(wide)
    replace_op(part, sunk.results[0])
    return sunk


def _reads(use: ir.OpOperand) -> bool:
    owner = use.owner.operation
    return owner.name == "linalg.generic" and use.operand_number < rows.Structured(owner).inputs


def _read(user: ir.Operation, index: int, source: ir.Value, cast: ir.Operation) -> None:
    """Makes operand `index` of `user` the uncast tensor, and casts in the body."""
    block = user.regions[0].blocks[0]
    argument = block.arguments[index]
    moved = _scalar_cast(cast).clone(ip=ir.InsertionPoint.at_block_begin(block))
    argument.replace_all_uses_with(moved.results[0])
    argument.set_type(source.type.element_type)
    moved.operation.operands[0] = argument
    user.operands[index] = source


def _can_yield(source: ir.Value) -> bool:
    """Whether the producer is an elementwise generic that nothing else uses."""
    producer = source.owner
    if isinstance(producer, ir.Block) or not is_generic(producer):
        return False
    block = producer.regions[0].blocks[0]
    parallel = all("parallel" in str(kind) for kind in ir.ArrayAttr(producer.attributes["iterator_types"]))
    fresh = producer.operands[rows.Structured(producer).inputs].owner
    return (
        parallel
        and len(list(source.uses)) == 1
        and not list(block.arguments[len(block.arguments) - 1].uses)
        and not isinstance(fresh, ir.Block)
        and fresh.name == "tensor.empty"
    )


def _yield(producer: ir.Operation, cast: ir.Operation) -> None:
    """Makes the producer yield the cast value into a tensor of the cast's type."""
    block = producer.regions[0].blocks[0]
    terminator = end_of(block)
    moved = _scalar_cast(cast).clone(ip=ir.InsertionPoint(terminator))
    moved.operation.operands[0] = terminator.operands[0]
    type_ = cast.results[0].type
    fresh = producer.operands[rows.Structured(producer).inputs].owner
    with ir.InsertionPoint(producer), producer.location:
        sizes = ir.Operation.create("tensor.empty", results=[type_], operands=list(fresh.operands)).result
    slim = ir.Operation.create(
        "linalg.generic",
        results=[type_],
        operands=[*list(producer.operands)[:-1], sizes],
        attributes={name: producer.attributes[name] for name in producer.attributes},
        regions=1,
        loc=producer.location,
        ip=ir.InsertionPoint(producer),
    )
    terminator.operands[0] = moved.results[0]
    block.arguments[len(block.arguments) - 1].set_type(type_.element_type)
    block.append_to(slim.regions[0])
    replace_op(cast, slim.results[0])
    producer.erase()


def _scalar_cast(cast: ir.Operation) -> ir.Operation:
    return list(cast.regions[0].blocks[0].operations)[0].operation
