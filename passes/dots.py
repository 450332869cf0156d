"""Small products of a batch whose operands are rows of tensors, or rows of tables by number (gathers): a kernel of
warps that load them straight into registers, and nothing that was gathered is in memory.

    %g = linalg.generic {...} ins(%i : tensor<512xi64>) { ... tensor.extract %table[...] }       // and others like it
    %z = tensor.concat dim(1) %x, %g, ... ; tensor.expand_shape -> tensor<512x27x128xbf16>
    %c = linalg.batch_matmul ins(%z, %z transposed) ...
    %t = linalg.generic {...} ins(%places : tensor<351xi64>) { ... tensor.extract %c[...] }      // some of the dots
  =>
    %p = "kitsune.kernel"() ({
      %lo, %hi, %st = "kitsune.tiles"(%c512) {tile = array<i64: 1>}
      "kitsune.agent"() ({
        scf.for %b = %lo to %hi step %st {
          %r = "kitsune.read"(%i, %b) : tensor<1xi64>
          %g = linalg.generic ins(%r) { ... tensor.extract %table[...] } : tensor<1x128xbf16>
          %z = tensor.concat dim(0) %x, %g, ... : tensor<27x128xbf16>
          %c = "kitsune.dots"(%z, %z) : tensor<27x27xf32>
          ...                                                          // what follows elementwise
          %s = "kitsune.stash"(%d)
          %t = linalg.generic {...} { ... tensor.extract %s[...] }
          "kitsune.write"(%t, %b, %c0) {dims = array<i64: 1>, index = 0 : i64}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.contraction import Contraction, is_zero_filled
from kitsune_mlir.dialects import dots, kitsune
from kitsune_mlir.generics import constant_index, empty_generic, zero_tensor
from kitsune_mlir.mlir import arith, attr_int, ir, tensor
from kitsune_mlir.operations import element_type, only_user, operations_of, users_of
from kitsune_mlir.planning import dots as planning
from kitsune_mlir.planning.target import Target
from kitsune_mlir.row_numbers import row_number
from kitsune_mlir.traffic import element_bytes, tensor_bytes

from .dots_body import behind, clone
from .dots_operands import Gathered, Given, Part, parts_of
from .kernel_build import deal_tiles, new_agent, new_kernel, read_box, turns, write_box
from .operand_layout import PADDED
from .product_follows import tiled

_FLOATS = ir.BF16Type | ir.F16Type | ir.F32Type
_ROLES = (("b", "m", "k"), ("b", "n", "k"))


@dataclass(frozen=True)
class Picked:
    """Some of a product's dots: what a linalg.generic takes out of it by number, of each of the batch the same."""

    op: ir.Operation
    flat: bool  # whether it takes them out of rows one behind the other

    @property
    def kept(self) -> list[int]:
        """The inputs that say which, and numbers; not those that are of the batch."""
        s = rows.Structured(self.op)
        return [i for i in range(s.inputs) if len(s.maps[i].results) == 1 or not rows.is_tensor(self.op.operands[i])]

    def read(self) -> list[ir.Value]:
        """These inputs, which are the same for all of the batch."""
        zero, values = constant_index(0), [self.op.operands[i] for i in self.kept]
        return [read_box(v, [zero], rows.shape_of(v), [0]) if rows.is_tensor(v) else v for v in values]

    def tile(self, stashed: ir.Value, columns: int, inputs: Sequence[ir.Value]) -> ir.Value:
        """The same of a tile in shared memory; `inputs` were read."""
        kind = ir.RankedTensorType(self.op.results[0].type)
        own = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0)])
        along = [own if rows.is_tensor(v) else ir.AffineMap.get(1, 0, []) for v in inputs]
        start = tensor.empty([kind.shape[1]], kind.element_type)
        made = empty_generic(inputs, [start], [*along, own], ["parallel"])

        def element(index: Sequence[ir.Value]) -> ir.Value:
            if not self.flat:
                return tensor.extract(stashed, index)
            (number,) = index
            each = constant_index(columns)
            return tensor.extract(stashed, [arith.divui(number, each), arith.remui(number, each)])

        clone(self.op, made, self.kept, lambda dim: 0, element)
        return made.results[0]


@dataclass(frozen=True)
class Plan:
    """A product as such a kernel: its operands' parts, which of it follows on its tiles, its batch (None: open until
    the call), columns and form."""

    op: ir.Operation
    parts: tuple[tuple[Part, ...], ...]  # of one operand where both are the same
    follows: tuple[ir.Operation, ...]
    picked: Picked | None
    padded: ir.Operation | None  # puts zeros behind the rows of what leaves
    batch: int | None
    k: int
    form: planning.Dots

    @property
    def last(self) -> ir.Operation:
        """The operation whose result the kernel gives."""
        if self.padded is not None:
            return self.padded
        return self.picked.op if self.picked is not None else [self.op, *self.follows][-1]

    @property
    def moves_less(self) -> bool:
        """Whether something of it would else be written and read again."""
        return self.picked is not None or any(isinstance(part, Gathered) for parts in self.parts for part in parts)

    def saved_us(self, target: Target) -> float:
        """Microseconds of the kernels that gather, and that pick, if this one does not."""
        gathered = [part for parts in self.parts for part in parts if isinstance(part, Gathered)]
        nbytes = sum(2.0 * tensor_bytes(part.op.results[0]) for part in gathered)
        picked = 0.0 if self.picked is None else 2.0 * tensor_bytes(self.op.results[0])
        return sum(target.launch_us + moved / (target.dram_gbps * 1e3) for moved in (nbytes, picked) if moved)


def plan(op: ir.Operation, found: Contraction, follows: Sequence[ir.Operation], target: Target) -> Plan | None:
    """How a product of a batch and what follows it elementwise are such a kernel; None where they are none."""
    left, right = (ir.RankedTensorType(value.type) for value in (found.left, found.right))
    if (found.left_roles, found.right_roles) != _ROLES or not is_zero_filled(found.init):
        return None
    if left.element_type != right.element_type or not isinstance(left.element_type, _FLOATS):
        return None
    if any(kind.is_dynamic_dim(d) for kind in (left, right) for d in (1, 2)):
        return None
    batch = None if left.is_dynamic_dim(0) or right.is_dynamic_dim(0) else left.shape[0]
    (_, m, k), n = left.shape, right.shape[1]
    last = follows[-1] if follows else op
    picked = _picked(last.results[0], m, n)
    values = [found.left] if found.left == found.right else [found.left, found.right]
    turned = {one for operand in op.operands if (one := rows.producer(operand)) and one.name == "linalg.transpose"}
    parts = tuple(tuple(parts_of(value, k, {op, *turned})) for value in values)
    kinds = {element_type(g.index) for own in parts for g in own if isinstance(g, Gathered)}
    if len(kinds) > 1:
        return None
    end = picked.op if picked is not None else last
    if not _writable(end.results[0].type):
        return None
    each = element_bytes(left.element_type)
    count = example_sizes.shape_of(found.left)[0]
    stored = prod(ir.RankedTensorType(end.results[0].type).shape[1:])
    moved = sum(part.rows for own in parts for part in own) * k * each * count
    moved += tensor_bytes(end.results[0])
    form = planning.choose(count, m, n, k, len(values) == 1, each, moved, stored, target)
    padded = None if picked is None else _padded(picked.op.results[0])
    return None if form is None else Plan(op, parts, tuple(follows), picked, padded, batch, k, form)


def build(plan: Plan, target: Target, name: str) -> None:
    """Puts the kernel in the place of all that it does."""
    last = plan.last
    type_ = ir.RankedTensorType(last.results[0].type)
    form = plan.form
    with last.location, ir.InsertionPoint(last):
        extent = constant_index(plan.batch) if plan.batch is not None else _open_size(plan)
        with new_kernel(name, target, form.price.us, form.price.limit, ctas=form.ctas) as built:
            dealt = deal_tiles([extent], [1])
            with new_agent("dots", 1, 1, form.registers):
                inputs = plan.picked.read() if plan.picked is not None and form.keeps_places else None
                with turns(*dealt.results) as number:
                    _body(plan, number, inputs)
        result = kitsune.result(built.results[0], 0, type_)
    last.results[0].replace_all_uses_with(result)
    _erase_unused([last])


def _body(plan: Plan, at: ir.Value, inputs: Sequence[ir.Value] | None) -> None:
    """A turn of the loop; `inputs` are what says which dots leave, where that was read before."""
    tiles = [behind([part.tile(at, plan.k) for part in parts]) for parts in plan.parts]
    m, n = ir.RankedTensorType(plan.op.results[0].type).shape[1:]
    sums = ir.RankedTensorType.get([m, n], ir.F32Type.get())
    zero, last = constant_index(0), plan.op.results[0]
    made = {last: dots.DotsOp(tiles[0], tiles[-1], sums).results[0]}
    for op in plan.follows:
        last = op.results[0]
        made[last] = tiled(op, made, {"b": at, "m": zero, "n": zero})
    value = dots.StashOp(made[last], made[last].type).results[0]
    if plan.picked is not None:
        value = plan.picked.tile(value, n, plan.picked.read() if inputs is None else inputs)
    rank = ir.RankedTensorType(value.type).rank
    write_box(value, [at, *[zero] * rank], 0, range(1, rank + 1))
    if plan.padded is not None:
        kind = ir.RankedTensorType(value.type)
        count = ir.RankedTensorType(plan.padded.results[0].type).shape[1] - kind.shape[0]
        write_box(zero_tensor([count], kind.element_type), [at, constant_index(kind.shape[0])], 0, [1])


def _open_size(plan: Plan) -> ir.Value:
    """The batch, of a tensor that is read."""
    sources = [part.value if isinstance(part, Given) else part.index for parts in plan.parts for part in parts]
    value = next(value for value in sources if ir.RankedTensorType(value.type).is_dynamic_dim(0))
    return tensor.dim(value, constant_index(0))


# ---- what follows


def _picked(value: ir.Value, m: int, n: int) -> Picked | None:
    """A linalg.generic that alone reads a product, or its rows one behind the other, and takes elements out of it."""
    reader = only_user(value)
    flat = reader is not None and reader.name == "tensor.collapse_shape"
    if flat:
        value = reader.results[0]
        if list(ir.RankedTensorType(value.type).shape)[1:] != [m * n]:
            return None
    extract = only_user(value)
    if extract is None or extract.name != "tensor.extract" or extract.parent.name != "linalg.generic":
        return None
    op = extract.parent.operation
    s = rows.Structured(op)
    if len(op.results) != 1 or s.iterators != ["parallel"] * 2 or s.maps[-1] != ir.AffineMap.get_identity(2):
        return None
    kind = ir.RankedTensorType(op.results[0].type)
    inner = operations_of(s.body)
    batch = row_number(extract.operands[1])
    if batch.size not in (None, ir.RankedTensorType(value.type).shape[0]) or not _counts(batch.source, op, s):
        return None
    others = [i for i in range(s.inputs) if rows.is_tensor(op.operands[i]) and s.body.arguments[i] != batch.source]
    columns = ir.AffineMap.get(2, 0, [ir.AffineDimExpr.get(1)])
    along = all(s.maps[i] == columns for i in others) and not _reach(batch.source, extract, inner)
    alone = sum(one.name == "tensor.extract" for one in inner) == 1 and not any(len(one.regions) for one in inner)
    if not (along and alone) or kind.is_dynamic_dim(1) or s.reads_start:
        return None
    return Picked(op, flat)


def _padded(value: ir.Value) -> ir.Operation | None:
    """What alone reads rows, and puts zeros behind them."""
    readers = users_of(value)
    if len(readers) != 1 or readers[0].name != "tensor.extract":
        return None
    op = readers[0].parent.operation
    return op if PADDED in op.attributes and op.parent == rows.producer(value).parent else None


def _counts(number: ir.Value, op: ir.Operation, s: rows.Structured) -> bool:
    """Whether a number in the body of a linalg.generic is that of the batch: its first loop's, or what a tensor of
    0, 1, 2, ... has there."""
    index = rows.producer(number)
    if index is not None:
        return index.name == "linalg.index" and attr_int(index, "dim") == 0
    place = ir.BlockArgument(number).arg_number
    if place >= s.inputs or rows.dim_of(list(s.maps[place].results)[0]) != 0:
        return False
    counted = rows.producer(op.operands[place])
    while counted is not None and counted.name in rows.RESHAPES:
        counted = rows.producer(counted.operands[0])
    if counted is None or counted.name != "linalg.generic":
        return False
    body = operations_of(counted.regions[0].blocks[0])
    return [one.name for one in body] == ["linalg.index", "arith.index_cast", "linalg.yield"]


def _reach(number: ir.Value, extract: ir.Operation, inner: Sequence[ir.Operation]) -> bool:
    """Whether a number of the batch goes anywhere but into the first index of what is extracted."""
    made = [number]
    for op in inner:
        first = 2 if op == extract else 0
        if any(operand == value for operand in list(op.operands)[first:] for value in made):
            if op == extract:
                return True
            made += op.results
    return any(operand == value for operand in inner[-1].operands for value in made)


def _writable(kind: ir.Type) -> bool:
    """Whether rows of these elements are stored."""
    tensor_type = ir.RankedTensorType(kind)
    known = not any(tensor_type.is_dynamic_dim(d) for d in range(1, tensor_type.rank))
    return known and isinstance(tensor_type.element_type, _FLOATS)


def _erase_unused(ops: list[ir.Operation]) -> None:
    """Erases operations that nothing uses, and those that then nothing uses."""
    while ops:
        op = ops.pop()
        if any(list(result.uses) for result in op.results):
            continue
        owners = [rows.producer(value) for value in rows.used_values(op)]
        around = [o for o in owners if o is not None and o.parent == op.parent and o.name.startswith(_PURE)]
        op.erase()
        ops += [one for number, one in enumerate(around) if one not in around[:number] and one not in ops]


_PURE = ("linalg.", "tensor.")
