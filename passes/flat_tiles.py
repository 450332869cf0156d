"""Tiles of more dimensions than two, as tiles of rows and columns: what warpgroups carry from product to product.

    %t = "kitsune.load"(%x) : (tensor<?x4x64xbf16>) -> tensor<?x4x64xbf16>
    %g = linalg.generic {...} ins(%t, %s : tensor<?x4x64xbf16>, tensor<4x64xbf16>) ...     // a GELU, scaled
    %c = tensor.collapse_shape %g [[0], [1, 2]] : tensor<?x4x64xbf16> into tensor<?x256xbf16>
    "kitsune.store"(%g) {index = 0}
  =>                                          %y = tensor.collapse_shape %x [[0], [1, 2]], in front of the pipeline
    %t = "kitsune.load"(%y) : (tensor<?x256xbf16>) -> tensor<?x256xbf16>
    %c = linalg.generic {...} ins(%t, %z : tensor<?x256xbf16>, tensor<256xbf16>) ...
    "kitsune.store"(%c) {index = 0}           %r = tensor.expand_shape %w [[0], [1, 2]], of the result

Torch gives what a layer makes the dimensions of its input back, and a row of these lies in memory as columns do.
Operators that do not treat it so, such as a transpose or a mean over some of the dimensions, keep their tiles, which
are expanded in front of them. So do rows that are too long for any tile, such as whole images: what is left of their
pipelines runs one operator at a time, behind convolutions that have the dimensions of images.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.generics import constant_index, set_iterators, set_maps
from kitsune_mlir.mlir import attr_int, ir, linalg, replace_op, tensor
from kitsune_mlir.operations import operations_of, users_of

_UNUSED = (*rows.RESHAPES, *rows.SUPPORT)
_MOST_COLUMNS = 8192  # of a tile: 16 rows, the fewest of a product, of 16-bit numbers in shared memory


def flatten_tiles(pipeline: kitsune.PipelineOp) -> None:
    """Rewrites the queues and stages of an unplaced pipeline, and what it loads and returns."""
    for queue in pipeline.queues:
        if _is_deep(queue.ring.tile) and queue.consumers and not any(stage.reduces for stage in queue.consumers):
            _flatten_queue(queue)
    for stage in pipeline.stages:
        with stage.operation.location:
            _Stage(pipeline, stage).run()


def _is_deep(type_: ir.Type) -> bool:
    if not isinstance(type_, ir.RankedTensorType) or type_.rank <= 2:
        return False
    return rows.DYNAMIC in type_.shape[1:] or prod(type_.shape[1:]) <= _MOST_COLUMNS


def _flat_type(type_: ir.Type) -> ir.RankedTensorType:
    kind = ir.RankedTensorType(type_)
    return ir.RankedTensorType.get([kind.shape[0], prod(kind.shape[1:])], kind.element_type)


def _groups(rank: int) -> list[list[int]]:
    """The dimensions but the first as one."""
    return [[0], list(range(1, rank))]


def _flatten_queue(queue: kitsune.QueueOp) -> None:
    with queue.operation.location, ir.InsertionPoint(queue):
        made = kitsune.QueueOp(
            queue.attributes["sym_name"], kitsune.ring_type(_flat_type(queue.ring.tile), queue.ring.slots)
        )
    for use in reversed(list(queue.results[0].uses)):  # in their order, which is that of the stages
        use.owner.operands[use.operand_number] = made.results[0]
    queue.operation.erase()


class _Stage:
    """Rewrites the body of one stage. `flat` has the flat tile of each that is an expanded one, by its key."""

    def __init__(self, pipeline: kitsune.PipelineOp, stage: kitsune.StageOp):
        self.pipeline, self.block = pipeline, stage.block
        self.flat: dict[int, ir.Value] = {}
        self.loads: list[tuple[ir.Operation, ir.Operation]] = []  # flat ones, each with what expands it

    def run(self) -> None:
        for op in operations_of(self.block):
            with op.location, ir.InsertionPoint(op):
                self._rewrite(op)
        self._erase_unused()
        for load, expanded in self.loads:
            if all(use.owner.operation in (expanded, *_sizes(load)) for use in load.results[0].uses):
                self._load_again(load, expanded)
        self._erase_unused()

    def _rewrite(self, op: ir.Operation) -> None:
        deep = [value for value in (*op.operands, *op.results) if _is_deep(value.type)]
        match op.name:
            case kitsune.LoadOp.OPERATION_NAME if _is_deep(op.results[0].type):
                self._load(op)
            case kitsune.GetOp.OPERATION_NAME if _is_deep(op.results[0].type):
                type_ = _flat_type(op.results[0].type)
                if op.operands[0].type.tile == type_:
                    self._replace(op, kitsune.GetOp(op.operands[0], type_).results[0])
            case kitsune.PutOp.OPERATION_NAME if _is_deep(op.operands[1].type):
                if not _is_deep(op.operands[0].type.tile):
                    op.operands[1] = self._flat(op.operands[1])
            case kitsune.StoreOp.OPERATION_NAME if _is_deep(op.operands[0].type) and hash(op.operands[0]) in self.flat:
                op.operands[0] = self.flat[hash(op.operands[0])]
                self._expand_result(op.opview)
            case "tensor.dim" if hash(op.operands[0]) in self.flat:
                op.operands[0] = self.flat[hash(op.operands[0])]
            case "tensor.collapse_shape" | "tensor.expand_shape" if deep:
                self._reshape(op)
            case "tensor.extract_slice" if deep:
                self._slice(op)
            case "tensor.concat" if deep:
                self._concat(op)
            case "linalg.generic" if deep:
                self._generic(op)

    def _flat(self, value: ir.Value) -> ir.Value:
        """The flat tile of one of more dimensions."""
        if hash(value) not in self.flat:
            groups = _groups(ir.RankedTensorType(value.type).rank)
            self.flat[hash(value)] = tensor.CollapseShapeOp(_flat_type(value.type), value, groups).result
        return self.flat[hash(value)]

    def _replace(self, op: ir.Operation, flat: ir.Value) -> ir.Operation | None:
        """Has users take a flat tile in the place of a result, expanded where that has more dimensions; gives what
        expands it."""
        expanded, type_ = None, ir.RankedTensorType(op.results[0].type)
        if type_.rank > 2:
            whole = _expanded(flat, type_)
            self.flat[hash(whole)], expanded = flat, whole.owner
        else:
            whole = flat
        replace_op(op, whole)
        return expanded

    def _load(self, op: ir.Operation) -> None:
        whole = op.operands[0]
        with ir.InsertionPoint(self.pipeline):
            collapsed = tensor.collapse_shape(
                _flat_type(whole.type), whole, _groups(ir.RankedTensorType(whole.type).rank)
            )
        load = kitsune.LoadOp(collapsed, _flat_type(op.results[0].type))
        self.loads.append((load.operation, self._replace(op, load.results[0])))

    def _load_again(self, load: ir.Operation, expanded: ir.Operation) -> None:
        """Loads all dimensions where nobody takes the flat tile."""
        collapsed = rows.producer(load.operands[0])
        with load.location, ir.InsertionPoint(load):
            made = kitsune.LoadOp(collapsed.operands[0], expanded.results[0].type).results[0]
        for size in _sizes(load):
            size.operands[0] = made
        replace_op(expanded, made)
        load.erase()
        collapsed.erase()

    def _expand_result(self, store: kitsune.StoreOp) -> None:
        for result in self.pipeline.result_ops:
            if result.position == store.position:
                type_ = ir.RankedTensorType(result.results[0].type)
                with result.operation.location, ir.InsertionPoint(result):
                    flat = kitsune.result(self.pipeline.results[0], result.position, _flat_type(type_))
                    result.results[0].replace_all_uses_with(_expanded(flat, type_))
                result.operation.erase()

    def _reshape(self, op: ir.Operation) -> None:
        """Other dimensions of the same elements of each row are the same flat tile."""
        source, result = op.operands[0], op.results[0]
        if not ir.RankedTensorType(source.type).rank or rows.shape_of(source)[0] != rows.shape_of(result)[0]:
            return
        if prod(rows.shape_of(source)[1:]) != prod(rows.shape_of(result)[1:]):
            return
        flat = self._flat(source) if _is_deep(source.type) else source
        if len(rows.shape_of(result)) == 1:
            replace_op(op, tensor.CollapseShapeOp(result.type, flat, [[0, 1]]).result)
        elif len(rows.shape_of(flat)) == 2:
            self._replace(op, flat)

    def _slice(self, op: ir.Operation) -> None:
        """A slice of the one dimension that has more than one column is one of the flat tile."""
        source, result = op.operands[0], op.results[0]
        if len(rows.shape_of(source)) != len(rows.shape_of(result)) or not _are_rows(source, result):
            return
        wide = [d for d, size in enumerate(rows.shape_of(source)) if d and size > 1]
        offsets, strides = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{n}"])) for n in ("offsets", "strides"))
        if len(wide) != 1 or rows.DYNAMIC in (*offsets, *strides) or offsets[0]:
            return
        type_, (d,) = _flat_type(result.type), wide
        sizes = list(op.operands)[1:]
        at = [0, offsets[d]], [type_.shape[0], type_.shape[1]], [1, strides[d]]
        self._replace(op, tensor.ExtractSliceOp(type_, self._flat(source), [], sizes, [], *at).result)

    def _concat(self, op: ir.Operation) -> None:
        """Tiles whose dimensions in front have one column are joined by their columns."""
        dim = attr_int(op, "dim")
        if dim and prod(rows.shape_of(op.results[0])[1:dim]) == 1:
            parts = [self._flat(value) for value in op.operands]
            self._replace(op, tensor.ConcatOp(_flat_type(op.results[0].type), 1, parts).result)

    def _generic(self, op: ir.Operation) -> None:
        """An operator that takes all dimensions but the first as one, or that has one of more than one column."""
        s = rows.Structured(op)
        loops = _Loops.of(s)
        if loops is None:
            return
        inputs = [map_ for i in range(s.inputs) if (map_ := loops.input(i)) is not None]
        tiles = [op.operands[i].type for i in range(len(op.operands)) if i == s.inputs or loops.streams(i)]
        if len(inputs) < s.inputs or any(
            ir.RankedTensorType(type_).rank > 2 and not _is_deep(type_) for type_ in tiles
        ):
            return
        for i, map_ in enumerate(inputs):
            value = op.operands[i]
            if _is_deep(value.type) and loops.streams(i):
                op.operands[i] = self._flat(value)
            elif rows.is_tensor(value) and len(map_.results) < ir.RankedTensorType(value.type).rank:
                with ir.InsertionPoint(self.pipeline):
                    op.operands[i] = _row_of(value)
        start = op.operands[s.inputs]
        type_ = _flat_type(start.type) if _is_deep(start.type) else start.type
        if _is_deep(start.type):
            op.operands[s.inputs] = self._start(start, type_)
        maps = [*inputs, loops.output()]
        clone = op.clone(ir.InsertionPoint.current)
        clone.results[0].set_type(type_)
        set_maps(clone, maps)
        set_iterators(clone, loops.iterators)
        for index in rows.Structured(clone).index_ops():
            index.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
        self._replace(op, clone.results[0])

    def _start(self, value: ir.Value, type_: ir.RankedTensorType) -> ir.Value:
        """What an output starts from, of rows and columns."""
        start = rows.init_of(value)
        if start.tensor is not None:
            return self._flat(value)
        made = rows.producer(value)
        empty = made if made.name == "tensor.empty" else rows.producer(made.operands[1])
        flat = tensor.EmptyOp(
            [*empty.operands, type_.shape[1]] if list(empty.operands) else list(type_.shape), type_.element_type
        )
        return flat.result if start.scalar is None else linalg.fill(start.scalar, outs=[flat.result])

    def _erase_unused(self) -> None:
        for op in reversed(operations_of(self.block)):
            if op.name in _UNUSED and not any(list(result.uses) for result in op.results):
                op.erase()


class _Loops:
    """The loops of an operator on tiles, of which `columns` become one, in order; others have one turn."""

    def __init__(self, s: rows.Structured, row: int, columns: list[int], turns: dict[int, int]):
        self.s, self.row, self.columns, self._turns = s, row, columns, turns

    @classmethod
    def of(cls, s: rows.Structured) -> _Loops | None:
        """None where they do not become two."""
        found = s.row_loops(1)
        if found is None or len(s.op.results) != 1:
            return None
        turns = {}
        for value, map_ in zip(s.op.operands, s.maps):
            for size, expr in zip(rows.shape_of(value) if rows.is_tensor(value) else (), map_.results):
                if (loop := rows.dim_of(expr)) is not None:
                    turns[loop] = size
        if len(turns) < len(s.iterators):
            return None
        inner = [loop for loop in range(len(s.iterators)) if loop != found[0]]
        columns = [loop for loop in inner if turns[loop] != 1] or inner[-1:]
        loops = cls(s, found[0], columns, turns)
        return loops if loops._become_two(inner) else None

    def _become_two(self, inner: list[int]) -> bool:
        kinds = {self.s.iterators[loop] for loop in self.columns}
        others = {self.s.iterators[loop] for loop in inner if loop not in self.columns}
        if not inner or len(kinds) > 1 or others - {"parallel"}:
            return False
        if kinds == {"reduction"} and len(self.columns) > 1:
            return False
        at = {attr_int(index, "dim") for index in self.s.index_ops()}
        if at and (len(self.columns) > 1 or at != set(self.columns)):
            return False
        written = [rows.dim_of(expr) for expr in self.s.maps[-1].results]
        wanted = [] if kinds == {"reduction"} else self.columns
        return [loop for loop in written[1:] if loop in self.columns] == wanted

    @property
    def iterators(self) -> list[str]:
        return ["parallel", self.s.iterators[self.columns[0]]]

    def streams(self, i: int) -> bool:
        """Whether an operand is a tile."""
        results = list(self.s.maps[i].results)
        return bool(results) and rows.dim_of(results[0]) == self.row

    def input(self, i: int) -> ir.AffineMap | None:
        """The map of an input in two loops; None where it has some of the columns, or in another order."""
        value, results = self.s.op.operands[i], list(self.s.maps[i].results)
        if not rows.is_tensor(value):
            return self.s.maps[i]
        first = 1 if self.streams(i) else 0
        inner, sizes = results[first:], rows.shape_of(value)[first:]
        if any(
            rows.dim_of(expr) is None and size != 1 or rows.dim_of(expr) == self.row for expr, size in zip(inner, sizes)
        ):
            return None
        taken = [loop for expr in inner if (loop := rows.dim_of(expr)) in self.columns]
        row, column = ir.AffineDimExpr.get(0), ir.AffineDimExpr.get(1)
        if taken and taken != self.columns:
            return None
        width = prod(rows.shape_of(value)[1:] if self.streams(i) else rows.shape_of(value))
        if width != (prod(self._turns[loop] for loop in taken) if taken else 1):
            return None
        if not self.streams(i):
            zeros = [ir.AffineConstantExpr.get(0)] * len(inner)
            return ir.AffineMap.get(2, 0, [column] if taken else zeros)
        if not inner:
            return ir.AffineMap.get(2, 0, [row])
        return ir.AffineMap.get(2, 0, [row, column if taken else ir.AffineConstantExpr.get(0)])

    def output(self) -> ir.AffineMap:
        results = list(self.s.maps[-1].results)
        row, column = ir.AffineDimExpr.get(0), ir.AffineDimExpr.get(1)
        if len(results) == 1:
            return ir.AffineMap.get(2, 0, [row])
        is_sum = self.iterators[1] == "reduction"
        return ir.AffineMap.get(2, 0, [row, ir.AffineConstantExpr.get(0) if is_sum else column])


def _are_rows(source: ir.Value, result: ir.Value) -> bool:
    return rows.shape_of(source)[0] == rows.shape_of(result)[0]


def _sizes(op: ir.Operation) -> list[ir.Operation]:
    return users_of(op.results[0], "tensor.dim")


def _row_of(value: ir.Value) -> ir.Value:
    """A resident as one row of columns."""
    kind = ir.RankedTensorType(value.type)
    type_ = ir.RankedTensorType.get([prod(kind.shape)], kind.element_type)
    return tensor.collapse_shape(type_, value, [list(range(kind.rank))])


def _expanded(flat: ir.Value, type_: ir.RankedTensorType) -> ir.Value:
    is_open = type_.is_dynamic_dim(0)
    size = [tensor.dim(flat, constant_index(0))] if is_open else []
    return tensor.ExpandShapeOp(type_, flat, _groups(type_.rank), size, list(type_.shape)).result
