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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, is_zero_filled
from kitsune_mlir.dialects import dots, kitsune, schedule
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, scf, tensor
from kitsune_mlir.plan import DYNAMIC_SIZE
from kitsune_mlir.planning import dots as planning
from kitsune_mlir.planning.target import Target
from kitsune_mlir.row_numbers import row_number
from kitsune_mlir.traffic import element_bytes, type_bytes

from .operand_layout import PADDED
from .product_follows import tiled
from .schedule_build import constant_index, empty_generic, i64

_FLOATS = ir.BF16Type | ir.F16Type | ir.F32Type
_ROLES = (("b", "m", "k"), ("b", "n", "k"))


@dataclass(frozen=True)
class Given:
    """Rows of an operand that are in memory: b x rows x k, or b x (rows k) of two dimensions."""

    value: ir.Value
    rows: int

    def tile(self, at: ir.Value, k: int) -> ir.Value:
        """The rows of number `at` of the batch, as a tile in registers."""
        kind = ir.RankedTensorType(self.value.type)
        zero = constant_index(0)
        if kind.rank == 3:
            return _read(self.value, [at, zero, zero], [1, 2], [self.rows, k])
        parts = [_read(self.value, [at, constant_index(row * k)], [0, 1], [1, k]) for row in range(self.rows)]
        return parts[0] if len(parts) == 1 else _behind(parts)


@dataclass(frozen=True)
class Gathered:
    """Rows of a table by number: what a linalg.generic takes out of it. The numbers are a column of `index`, from
    `column` on, or `index` itself where that has one dimension."""

    op: ir.Operation
    index: ir.Value
    column: int
    rows: int

    def tile(self, at: ir.Value, k: int) -> ir.Value:
        """As of Given."""
        kind = ir.RankedTensorType(self.index.type)
        offsets = [at] if kind.rank == 1 else [at, constant_index(self.column)]
        numbers = _read(self.index, offsets, [kind.rank - 1], [self.rows])
        element = ir.RankedTensorType(self.op.results[0].type).element_type
        last = ir.RankedTensorType(self.op.results[0].type).rank - 1
        by_row, whole = ir.AffineMap.get(2, 0, [ir.AffineDimExpr.get(0)]), ir.AffineMap.get_identity(2)
        start = tensor.empty([self.rows, k], element)
        made = empty_generic([numbers], [start], [by_row, whole], ["parallel"] * 2)
        _clone(self.op, made, [0], lambda dim: 1 if dim == last else 0)
        return made.results[0]


Part = Given | Gathered


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
        return [
            _read(v, [zero], [0], list(ir.RankedTensorType(v.type).shape)) if rows.is_tensor(v) else v for v in values
        ]

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

        _clone(self.op, made, self.kept, lambda dim: 0, element)
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
        nbytes = sum(2.0 * type_bytes(part.op.results[0].type, DYNAMIC_SIZE) for part in gathered)
        picked = 0.0 if self.picked is None else 2.0 * type_bytes(self.op.results[0].type, DYNAMIC_SIZE)
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
    parts = tuple(tuple(_parts(value, k, {op, *turned})) for value in values)
    kinds = {ir.RankedTensorType(g.index.type).element_type for own in parts for g in own if isinstance(g, Gathered)}
    if len(kinds) > 1:
        return None
    end = picked.op if picked is not None else last
    if not _writable(end.results[0].type):
        return None
    each = element_bytes(left.element_type)
    count = DYNAMIC_SIZE if batch is None else batch
    stored = prod(ir.RankedTensorType(end.results[0].type).shape[1:])
    moved = sum(part.rows for own in parts for part in own) * k * each * count + type_bytes(
        end.results[0].type, DYNAMIC_SIZE
    )
    form = planning.choose(count, m, n, k, len(values) == 1, each, moved, stored, target)
    padded = None if picked is None else _padded(picked.op.results[0])
    return None if form is None else Plan(op, parts, tuple(follows), picked, padded, batch, k, form)


def build(plan: Plan, target: Target, name: str) -> None:
    """Puts the kernel in the place of all that it does."""
    last = plan.last
    type_ = ir.RankedTensorType(last.results[0].type)
    index = ir.IndexType.get()
    with last.location, ir.InsertionPoint(last):
        extent = constant_index(plan.batch) if plan.batch is not None else _open_size(plan)
        kernel = schedule.KernelOp(ir.StringAttr.get(name), kitsune.Outputs.get())
        kernel.attributes["target"] = ir.StringAttr.get(target.name)
        kernel.attributes["ctas"] = i64(plan.form.ctas)
        kernel.attributes["predicted_us"] = ir.FloatAttr.get(ir.F32Type.get(), plan.form.price.us)
        kernel.attributes["limit"] = ir.StringAttr.get(plan.form.price.limit)
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            dealt = schedule.TilesOp([extent], index, index, index)
            dealt.attributes["tile"] = ir.DenseI64ArrayAttr.get([1])
            agent = schedule.AgentOp(ir.StringAttr.get("dots"), *map(i64, (1, 1, plan.form.registers)))
            with ir.InsertionPoint(agent.regions[0].blocks.append(index)):
                inputs = plan.picked.read() if plan.picked is not None and plan.form.keeps_places else None
                loop = scf.ForOp(*dealt.results)
                with ir.InsertionPoint(loop.body):
                    _body(plan, loop.induction_variable, inputs)
                    scf.yield_([])
        result = kitsune.ResultOp(kernel.results[0], i64(0), type_).results[0]
    last.results[0].replace_all_uses_with(result)
    _erase_unused([last])


def _body(plan: Plan, at: ir.Value, inputs: Sequence[ir.Value] | None) -> None:
    """A turn of the loop; `inputs` are what says which dots leave, where that was read before."""
    tiles = [_behind([part.tile(at, plan.k) for part in parts]) for parts in plan.parts]
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
    _write(value, [at, *[zero] * rank])
    if plan.padded is not None:
        kind = ir.RankedTensorType(value.type)
        count = ir.RankedTensorType(plan.padded.results[0].type).shape[1] - kind.shape[0]
        nothing = arith.ConstantOp(kind.element_type, ir.FloatAttr.get(kind.element_type, 0.0)).result
        zeros = linalg.fill(nothing, outs=[tensor.empty([count], kind.element_type)])
        _write(zeros, [at, constant_index(kind.shape[0])])


def _open_size(plan: Plan) -> ir.Value:
    """The batch, of a tensor that is read."""
    sources = [part.value if isinstance(part, Given) else part.index for parts in plan.parts for part in parts]
    value = next(value for value in sources if ir.RankedTensorType(value.type).is_dynamic_dim(0))
    return tensor.dim(value, constant_index(0))


# ---- operands


def _parts(value: ir.Value, k: int, readers: set[ir.Operation]) -> list[Part]:
    """The rows of an operand, b x rows x k or b x (rows k), part by part. `readers` are all that use it, if it is to be
    in no memory."""
    kind, op = ir.RankedTensorType(value.type), rows.producer(value)
    own = op is not None and all(use.owner.operation in readers for use in value.uses)
    if own:
        if op.name == "tensor.concat" and attr_int(op, "dim") == 1 and _in_rows(op.operands, k):
            return [part for operand in op.operands for part in _parts(operand, k, {op})]
        if op.name in rows.RESHAPES and _keeps_rows(op, k):
            return _parts(op.operands[0], k, {op})
        if (gathered := _gathered(op, k)) is not None:
            return [gathered]
    return [Given(value, kind.shape[1] if kind.rank == 3 else kind.shape[1] // k)]


def _in_rows(values: Iterable[ir.Value], k: int) -> bool:
    """Whether each of these has whole rows of k elements."""
    kinds = [ir.RankedTensorType(value.type) for value in values]
    return all(not kind.is_dynamic_dim(1) and kind.shape[-1] % k == 0 for kind in kinds)


def _keeps_rows(op: ir.Operation, k: int) -> bool:
    """Whether a reshape has the same rows of k elements for each of the batch."""
    kinds = [ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0])]
    ranks = all(kind.rank == 3 and kind.shape[-1] == k or kind.rank == 2 for kind in kinds)
    first, second = (kind.is_dynamic_dim(0) or kind.shape[0] for kind in kinds)
    return ranks and first == second and _in_rows(op.operands[:1], k)


def _gathered(op: ir.Operation, k: int) -> Gathered | None:
    """What a linalg.generic takes out of a table of so many columns, row by row; None for another."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    s = rows.Structured(op)
    rank, tables = len(s.iterators), s.tables()
    if s.inputs != 1 or "reduction" in s.iterators or len(tables) != 1 or not rows.is_tensor(op.operands[0]):
        return None
    table = ir.RankedTensorType(tables[0].type)
    if rank not in (2, 3) or table.rank != 2 or not table.has_static_shape or table.shape[1] != k or not table.shape[0]:
        return None
    if s.maps[1] != ir.AffineMap.get_identity(rank) or list(list(s.body.arguments)[1].uses):
        return None
    outer = [ir.AffineDimExpr.get(d) for d in range(rank - 1)]
    (extract,) = [inner.operation for inner in s.body.operations if inner.operation.name == "tensor.extract"]
    _, number, column = extract.operands
    last = rows.producer(column)
    if s.maps[0] != ir.AffineMap.get(rank, 0, outer) or last is None or last.name != "linalg.index":
        return None
    taken = row_number(number)
    if attr_int(last, "dim") != rank - 1 or taken.source != list(s.body.arguments)[0]:
        return None
    if taken.size not in (None, table.shape[0]):
        return None
    if list(s.body.operations)[-1].operands[0] != extract.results[0]:
        return None
    index, column = _column_of(op.operands[0])
    count = 1 if rank == 2 else ir.RankedTensorType(op.results[0].type).shape[1]
    if count < 0 or not isinstance(ir.RankedTensorType(index.type).element_type, ir.IntegerType):
        return None
    return Gathered(op, index, column, count)


def _column_of(value: ir.Value) -> tuple[ir.Value, int]:
    """The tensor of two dimensions whose column `value` is, and the column's number; itself where it is none."""
    collapse = rows.producer(value)
    slice_ = rows.producer(collapse.operands[0]) if collapse is not None and collapse.name in rows.RESHAPES else None
    if ir.RankedTensorType(value.type).rank != 1 or slice_ is None or slice_.name != "tensor.extract_slice":
        return value, 0
    base, part = ir.RankedTensorType(slice_.operands[0].type), ir.RankedTensorType(slice_.results[0].type)
    offsets, strides = (list(ir.DenseI64ArrayAttr(slice_.attributes[f"static_{x}"])) for x in ("offsets", "strides"))
    whole = base.is_dynamic_dim(0) if part.is_dynamic_dim(0) else base.shape[0] == part.shape[0]
    if base.rank != 2 or part.rank != 2 or part.shape[1] != 1 or not whole or offsets[0] or strides != [1, 1]:
        return value, 0
    if not 0 <= offsets[1] < base.shape[1]:
        return value, 0
    return slice_.operands[0], offsets[1]


# ---- what follows


def _picked(value: ir.Value, m: int, n: int) -> Picked | None:
    """A linalg.generic that alone reads a product, or its rows one behind the other, and takes elements out of it."""
    uses = list(value.uses)
    flat = len(uses) == 1 and uses[0].owner.operation.name == "tensor.collapse_shape"
    if flat:
        value = uses[0].owner.operation.results[0]
        if list(ir.RankedTensorType(value.type).shape)[1:] != [m * n]:
            return None
    readers = [use.owner.operation for use in value.uses]
    if len(readers) != 1 or readers[0].name != "tensor.extract" or readers[0].parent.name != "linalg.generic":
        return None
    extract, op = readers[0], readers[0].parent.operation
    s = rows.Structured(op)
    if len(op.results) != 1 or s.iterators != ["parallel"] * 2 or s.maps[-1] != ir.AffineMap.get_identity(2):
        return None
    kind = ir.RankedTensorType(op.results[0].type)
    inner = [one.operation for one in s.body.operations]
    batch = row_number(extract.operands[1])
    if batch.size not in (None, ir.RankedTensorType(value.type).shape[0]) or not _counts(batch.source, op, s):
        return None
    others = [i for i in range(s.inputs) if rows.is_tensor(op.operands[i]) and s.body.arguments[i] != batch.source]
    columns = ir.AffineMap.get(2, 0, [ir.AffineDimExpr.get(1)])
    along = all(s.maps[i] == columns for i in others) and not _reach(batch.source, extract, inner)
    alone = sum(one.name == "tensor.extract" for one in inner) == 1 and not any(len(one.regions) for one in inner)
    if not (along and alone) or kind.is_dynamic_dim(1) or list(list(s.body.arguments)[-1].uses):
        return None
    return Picked(op, flat)


def _padded(value: ir.Value) -> ir.Operation | None:
    """What alone reads rows, and puts zeros behind them."""
    readers = [use.owner.operation for use in value.uses]
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
    body = [one.operation for one in counted.regions[0].blocks[0].operations]
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


# ---- rewriting


def _read(value: ir.Value, at: Sequence[ir.Value], dims: Sequence[int], shape: Sequence[int]) -> ir.Value:
    kind = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)
    read = schedule.ReadOp(value, list(at), kind)
    read.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(dims))
    return read.results[0]


def _write(tile: ir.Value, at: Sequence[ir.Value]) -> None:
    """The tile's dimensions are the last of the output's."""
    rank = ir.RankedTensorType(tile.type).rank
    write = schedule.WriteOp(tile, list(at), i64(0))
    write.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(1, rank + 1)))


def _behind(tiles: Sequence[ir.Value]) -> ir.Value:
    """Tiles one behind the other."""
    if len(tiles) == 1:
        return tiles[0]
    kinds = [ir.RankedTensorType(tile.type) for tile in tiles]
    whole = ir.RankedTensorType.get([sum(kind.shape[0] for kind in kinds), kinds[0].shape[1]], kinds[0].element_type)
    return tensor.ConcatOp(whole, i64(0), list(tiles)).result


def _clone(
    op: ir.Operation,
    into: ir.Operation,
    kept: Sequence[int],
    loop: Callable[[int | None], int],
    element: Callable[[Sequence[ir.Value]], ir.Value] | None = None,
) -> None:
    """The body of a linalg.generic as that of another, which has the inputs `kept` alone, and whose loop `loop(d)` is
    its loop d. An element that it takes out of a tensor of the batch is `element(index)`, of its index without the
    first."""
    source, block = op.regions[0].blocks[0], into.regions[0].blocks[0]
    values = {hash(source.arguments[i]): own for i, own in zip(kept, block.arguments)}
    inner = [one.operation for one in source.operations]
    needed, wanted = set(), [inner[-1]]
    while wanted:
        one = wanted.pop()
        needed.add(one)
        first = 2 if one.name == "tensor.extract" and element is not None else 0
        makers = [rows.producer(operand) for operand in list(one.operands)[first:]]
        wanted += [maker for maker in makers if maker is not None and maker.parent == op and maker not in needed]
    with ir.InsertionPoint(block):
        for one in (one for one in inner if one in needed):
            operands = [values.get(hash(operand), operand) for operand in one.operands]
            with one.location:
                if one.name == "linalg.index":
                    made = [linalg.IndexOp(i64(loop(attr_int(one, "dim")))).result]
                elif one.name == "tensor.extract" and element is not None:
                    made = [element(operands[2:])]
                else:
                    clone = one.clone()
                    for i, operand in enumerate(operands):
                        clone.operands[i] = operand
                    made = list(clone.results)
            values.update(zip(map(hash, one.results), made))


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
