"""Operators of a group on tiles of a product's results, a warpgroup's rows and some columns of them: what is read
besides, and what is computed of places (attention_body.py, back_to_back_kernel.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kitsune_mlir import rows
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import constant_index, extended, generic, map_of
from kitsune_mlir.mlir import arith, ir, linalg, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.kernel_cost import DEAR_FAST
from kitsune_mlir.planning.product_engines import COPY_ROWS
from kitsune_mlir.traffic import element_bytes

from .of_places import is_of_places, tile_of_places
from .row_bodies import Key, RowBody
from .row_groups import Member, root
from .row_plan import RowPlan
from .tensor_sizes import TensorSizes, or_dynamic


class ScoreTiles(RowBody):
    """A group on tiles of a warpgroup's rows and some columns, of `size` that there are. `scores` are results of
    products, of which tiles are given; `known` knows the sizes of tensors."""

    def __init__(self, plan: RowPlan, scores: Iterable[ir.Value], size: int, known: TensorSizes):
        given = {value: value for value in scores}
        super().__init__(plan, COPY_ROWS, given, known if plan.has_several_open else None)
        self.size, self.f32 = size, ir.F32Type.get()
        self.end: ir.Value | None = None  # columns from here on are not there, where that is known when it runs
        self.tiles: dict[Key, ir.Value] = {}
        self.kept: dict[Key, ir.Value] = {}

    @property
    def columns(self) -> int:
        """The columns of a tile."""
        return self._columns

    def check(self) -> None:
        """Raises UnsupportedError where what is read has no shape in which tiles read it."""
        if self.plan.segments is None:
            raise UnsupportedError("operands have parts of rows that do not agree")
        if self.several is not None:
            super().check()

    def bring(self) -> None:
        super().bring()
        self.inputs = {key: root(key[0]) if self._is_computed(key) else whole for key, whole in self.inputs.items()}

    def place(self, at: Sequence[ir.Value], first_column: ir.Value, columns: int) -> None:
        """What follows is about the tile at these offsets, one for each segment of the rows, from a column on."""
        self.at, self.first_column, self._columns = list(at), first_column, columns
        self.tiles, self.values = dict(self.kept), {}

    def read_ahead(self, members: Iterable[Member], columns_alone: bool = False) -> None:
        """Reads what operators read of rows and columns besides products, perhaps what they do of columns alone."""
        for key in self._brought_keys(members):
            if key not in self.tiles and key[2] and (key[1][-1] or columns_alone):
                self.tiles[key] = read = self._brought(key)
                read.owner.attributes["ahead"] = ir.UnitAttr.get()

    def keep_rows(self, members: Iterable[Member], at: Sequence[ir.Value], columns: int) -> None:
        """Reads what operators read of rows alone, once for all tiles of so many columns from the rows at these offsets
        on."""
        self.kept = {}
        self.place(at, constant_index(0), columns)
        for key in self._brought_keys(members):
            if key not in self.kept and key[1][-1] and not key[2]:
                read = self._brought(key)
                self.kept[key] = self._made([read], [ROWS], [COPY_ROWS], element_type(read), lambda a: a)

    def _brought_keys(self, members: Iterable[Member]) -> Iterator[Key]:
        for key in (key for member in members for key in self._keys(member) if key is not None):
            if not self._is_computed(key):
                yield key

    @property
    def has_rest(self) -> bool:
        """Whether some columns of a tile may not be there."""
        return self.size % self.columns > 0 or self.end is not None

    def only_inside(self, tile: ir.Value, other: float) -> ir.Value:
        """A tile of which columns that are not there are `other`."""
        i32, first = ir.IntegerType.get_signless(32), self.first_column

        def chosen(x: ir.Value) -> ir.Value:
            place = arith.addi(arith.index_cast(i32, linalg.IndexOp(1).result), arith.index_cast(i32, first))
            end = arith.constant(i32, self.size) if self.end is None else arith.index_cast(i32, self.end)
            there = arith.cmpi(arith.CmpIPredicate.slt, place, end)
            return arith.select(there, x, arith.constant(x.type, other))

        return self._made([tile], [TILE], rows.shape_of(tile), element_type(tile), chosen)

    def _emit(self, member: Member) -> ir.Value:
        """An operator on the tile."""
        for key in self._keys(member):
            if key is not None and key not in self.tiles:
                self.tiles[key] = self._brought(key)
        self.values[member.op.results[0]] = made = self._tiled(member, self.tiles)
        return made

    def _brought(self, key: Key) -> ir.Value:
        value, present, columns = key
        if not self._is_computed(key):
            return self._read(key, self.inputs[key], self.at, self.first_column)
        dims = self._dims(key)
        assert dims is not None
        last, has_rows = len(self.at) - 1, present[-1]
        shape = [self.rows] * has_rows + [self.columns] * columns
        first = [None if d is None else self.first_column if d < 0 else self.at[d] for d in dims]
        return tile_of_places(
            value, shape, first, [int(has_rows) if d == -1 else 0 if d == last else None for d in dims]
        )

    def _is_computed(self, key: Key) -> bool:
        return is_of_places(key[0]) and self._dims(key) is not None

    def _dims(self, key: Key) -> list[int | None] | None:
        """For each dimension of a tensor the segment of rows that it is, -1 where it is the columns, None where it has
        a single element; None where its dimensions are others."""
        value, present, columns = key
        wanted = [(i, size) for i, (size, here) in enumerate(zip(self.plan.segments or [], present)) if here]
        wanted += [(-1, self.plan.space.columns)] if columns else []
        wanted = [(i, size) for i, size in wanted if size != 1]
        long = [(d, size) for d, size in enumerate(rows.shape_of(value)) if size != 1]
        if [or_dynamic(size) for _, size in wanted] != [size for _, size in long]:
            return None
        of = {d: i for (i, _), (d, _) in zip(wanted, long)}
        return [of.get(d) for d in range(len(rows.shape_of(value)))]

    # ---- tiles

    def _of_rows(
        self, inputs: Sequence[ir.Value], make: Callable[..., ir.Value], element: ir.Type | None = None
    ) -> ir.Value:
        """A number for each row, of those of others, computed in f32."""
        return self._made(inputs, [[0]] * len(inputs), [COPY_ROWS], element or self.f32, make)

    def _typed(self, numbers: ir.Value, element: ir.Type) -> ir.Value:
        """Numbers of rows as such elements."""
        return numbers if element_type(numbers) == element else self._of_rows([numbers], lambda a: a, element)

    def _made(
        self,
        inputs: Sequence[ir.Value],
        maps: Sequence[list[int]],
        shape: list[int],
        element: ir.Type,
        make: Callable[..., ir.Value],
    ) -> ir.Value:
        """A tile of these sizes, of others, with dimensions of it, computed in f32."""

        def body(*given: ir.Value) -> ir.Value:
            x = make(*map(widened, given))
            return x if x.type == element else arith.truncf(element, x)

        return self._generic(inputs, maps, shape, element, body)

    @staticmethod
    def _generic(
        inputs: Sequence[ir.Value],
        maps: Sequence[list[int]],
        shape: list[int],
        element: ir.Type,
        body: Callable[..., ir.Value],
    ) -> ir.Value:
        dims, iterators = [map_of(len(shape), own) for own in (*maps, range(len(shape)))], ["parallel"] * len(shape)
        start = tensor.empty(shape, element)
        return generic(inputs, [start], dims, iterators, lambda *given: body(*given[:-1])).results[0]


def work_of_elements(members: Iterable[Member], brought: Iterable[ir.Value]) -> tuple[float, float]:
    """The instructions that operators take for an element, with those for what is `brought` to it, and the bytes of
    memory that come to it."""
    work, read = 0.0, 0.0
    for member in members:
        work += sum(DEAR_FAST.get(inner.operation.name, 1) for inner in member.s.body.operations) - 1
    for value in brought:
        if is_of_places(value):
            work += _OF_PLACES
        else:
            work += _OF_READ
            read += element_bytes(element_type(value))
    return work, read


_OF_PLACES, _OF_READ = 2.0, 12.0  # instructions for an element that is computed of places, and for one that is read
TILE, ROWS = [0, 1], [0]  # the dimensions of a tile that another has


def widened(x: ir.Value) -> ir.Value:
    """A number as one of f32."""
    return extended(x, ir.F32Type.get())
