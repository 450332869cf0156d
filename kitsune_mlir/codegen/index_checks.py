"""Row numbers that come from data, checked on a GPU where a kernel loads them.

A number outside of its table becomes no access: a gather reads row 0 instead, a scatter leaves the row out. The thread
also notes which check failed in one word of the host's memory. A kernel finds the word through a global of its
gpu.module, which the runtime points to it when it loads the code (runtime/index_reports.py), so that no launch has a
parameter more:

    llvm.mlir.global external @kitsune_wild(0 : i64) {addr_space = 1 : i32} : i64

The attribute `kitsune.checks` of the gpu.module says where in the model each check stands. The word keeps the largest
number that is written (PTX ISA, red), and the first check has the largest: of several that fail the first in the
program is named, each time. A table whose size is not known until the call has its rows as a parameter of its pipeline.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from kitsune_mlir.codegen.number_ranges import is_within
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, llvm, location, walk
from kitsune_mlir.runtime.index_reports import FIRST, WORD

CHECKS = "kitsune.checks"
_REPORT = f"""{{
.reg .pred wild;
.reg .b64 word;
setp.ne.u32 wild, $0, 0;
@wild ld.global.u64 word, [{WORD}];
@wild red.relaxed.gpu.global.max.u32 [word], %d;
}}"""
_CONVERSIONS = ("arith.fptosi", "arith.fptoui", "arith.bitcast")
_CHECKED = ("tensor.extract", "kitsune.scatter", "kitsune.write_rows", "kitsune.gather_rows", "kitsune.look_up")
KNOWN, DATA, COMPUTED = "known", "data", "computed"


@dataclass
class Checks:
    """The checks of a gpu.module. `places` are lines of the model, by number; `sizes` the rows (i64, in the kernel that
    is being generated) of the tables, by key, that have any number."""

    places: list[str] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # by the key of what is checked
    tables: list[ir.Value] = field(default_factory=list)  # of any number of rows
    sizes: dict[int, ir.Value] = field(default_factory=dict)
    used: bool = False
    later: ir.Block | None = None  # in whose code reports wait for its end
    waiting: dict[int, ir.Value] = field(default_factory=dict)  # whether a check failed (i1), by its number

    def number_at(self, place: str) -> int:
        """The number of the check at a line of the model: one for all that stand there."""
        if place not in self.places:
            self.places.append(place)
        return self.places.index(place)

    def report(self, wrong: ir.Value, number: int) -> None:
        """Where `wrong` (i1) holds, notes that a check failed."""
        if self.later is not None and ir.InsertionPoint.current.block == self.later:
            before = self.waiting.get(number)
            self.waiting[number] = wrong if before is None else arith.ori(before, wrong)
            return
        self.used = True
        device.assembly(_REPORT % (FIRST - number), wrong, memory=False)

    @contextlib.contextmanager
    def behind(self) -> Iterator[None]:
        """Code in whose block what is found is reported behind it. A report is an access to memory that no other may
        pass, so that loads of row numbers, and of rows, would wait for one another."""
        if self.later is not None:
            yield
            return
        self.later = ir.InsertionPoint.current.block
        try:
            yield
            found, self.waiting, self.later = self.waiting, {}, None
            for number, wrong in found.items():
                self.report(wrong, number)
        finally:
            self.waiting, self.later = {}, None

    def write(self, gpu_module: ir.Operation) -> None:
        """Gives a gpu.module whose kernels report what they need for it."""
        if not self.used:
            return
        i64, block = ir.IntegerType.get_signless(64), gpu_module.regions[0].blocks[0]
        with gpu_module.context, gpu_module.location, ir.InsertionPoint.at_block_begin(block):
            linkage = ir.Attribute.parse("#llvm.linkage<external>")
            llvm.GlobalOp(i64, WORD, linkage, addr_space=1, value=ir.IntegerAttr.get(i64, 0))
            gpu_module.attributes[CHECKS] = ir.ArrayAttr.get([ir.StringAttr.get(place) for place in self.places])


def places_of(gpu_module: ir.Operation) -> list[str]:
    """Where in the model the checks of a gpu.module stand, by number."""
    if CHECKS not in gpu_module.attributes:
        return []
    return [ir.StringAttr(place).value for place in ir.ArrayAttr(gpu_module.attributes[CHECKS])]


def alternatives(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The places of checks in code that stands for two parts of the model."""
    pairs = zip(first, second, strict=True)
    return [a if b in a.split(" or ") else f"{a} or {b}" for a, b in pairs]


_NOW: ContextVar[Checks | None] = ContextVar("index_checks", default=None)


@contextlib.contextmanager
def of_pipeline(pipeline: ir.OpView) -> Iterator[Checks]:
    """The checks of the kernels whose code is generated inside."""
    checks = Checks()
    for op in walk(pipeline, *_CHECKED):
        if op.name == "kitsune.look_up":
            checks.numbers[_key(op)] = checks.number_at(location(op.location))
        if op.name == "kitsune.gather_rows" and _key(op) not in checks.numbers:  # one for all columns of the rows
            checks.numbers[_key(op)] = checks.number_at(location(op.location))
            checks.tables += [table for table in [op.operands[1]] if _is_open(table) and table not in checks.tables]
        adds = op.name == "kitsune.scatter" or op.name == "kitsune.write_rows" and op.opview.adds
        if adds or op.name == "tensor.extract" and _checked(op):
            checks.numbers[_key(op)] = len(checks.places)
            checks.places.append(location(op.location))
            tables = op.opview.like if adds else [op.operands[0]]
            checks.tables += [table for table in tables if _is_open(table) and table not in checks.tables]
    token = _NOW.set(checks)
    try:
        yield checks
    finally:
        _NOW.reset(token)


@contextlib.contextmanager
def reported_behind() -> Iterator[None]:
    """Code for a tile: what is found in it is reported behind it (Checks.behind)."""
    with contextlib.nullcontext() if (now := _NOW.get()) is None else now.behind():
        yield


def open_tables() -> int:
    """Of how many tables the kernel whose code is generated has the rows as its last parameters (i64)."""
    now = _NOW.get()
    return 0 if now is None else len(now.tables)


def know_sizes(values: Sequence[ir.Value]) -> None:
    """Says what these parameters are in the code that is generated from now on."""
    now = _NOW.get()
    if now is not None:
        now.sizes = {hash(table): value for table, value in zip(now.tables, values, strict=True)}


def open_rows(table: ir.Value) -> ir.Value:
    """The rows (an index) of a table that has any number of them, such as a negative row number is counted from."""
    now = _NOW.get()
    if now is None or hash(table) not in now.sizes:
        raise UnsupportedError("a stage asks for the size of what it takes no rows of; a GPU pipeline is not given it")
    return arith.index_cast(ir.IndexType.get(), now.sizes[hash(table)])


def sizes(pipeline: ir.OpView, tensors: Sequence[ir.Value]) -> dict[str, list[int]]:
    """For a pipeline's launch: which of its tensors are tables whose rows are parameters, if any are."""
    with of_pipeline(pipeline) as checks:
        found = [tensors.index(table) for table in checks.tables]
    return {"sizes": found} if found else {}


def row_inside(extract: ir.Operation, axis: int, row: ir.Value) -> ir.Value:
    """In a pipeline: an index along an axis of the table of a tensor.extract, or 0 where the table does not have it,
    which is reported."""
    table = extract.operands[0]
    found = origin(extract.operands[1 + axis], table.type.shape[axis])
    if _NOW.get() is None or found == KNOWN:
        return row
    size = _size_of(table) if axis == 0 else None
    return _kept(row, size, table.type.shape[axis], extract if found == DATA else None)


def gathered_row(gather: ir.Operation, row: ir.Value) -> ir.Value:
    """In a kernel: a row (an integer) of the table of a kitsune.gather_rows, or 0 where the table does not have it,
    which is reported."""
    table = gather.operands[1]
    return row if _NOW.get() is None else _kept(row, _size_of(table), table.type.shape[0], gather)


def looked_up(look_up: ir.Operation, place: ir.Value) -> ir.Value:
    """In a kernel: the place (an integer) that a kitsune.look_up gives, or 0 where there is none, which is reported."""
    return _kept(place, None, look_up.opview.count, look_up)


def known_row(table: ir.Value, row: ir.Value) -> ir.Value:
    """A row (an integer) of a table in global memory, or 0 where the table does not have it, which others report."""
    return _kept(row, _size_of(table), table.type.shape[0], None)


def rows_inside(row: ir.Value, size: ir.Value, checks: Sequence[tuple[ir.Operation, ir.Value]]) -> ir.Value:
    """In a kernel whose lanes gather out of tables of their own: a row (i64), or 0 where a lane's table, of `size` rows
    (i64), does not have it. `checks` are the gathers, and beside each whether (i1) the lane's row is of it."""
    inside = _is_inside(row, size, 0)
    now = _NOW.get()
    if now is not None:
        numbers: dict[str, int] = {}  # gathers of a line are one check, whose number is that of the first
        for extract, own in ((extract, own) for extract, own in checks if _key(extract) in now.numbers):
            number = now.numbers[_key(extract)]
            number = numbers.setdefault(now.places[number], number)
            now.report(arith.andi(own, device.flipped(inside)), number)
    return arith.select(inside, row, arith.constant(row.type, 0))


def may_add(scatter: ir.Operation, row: ir.Value, rows: int, exists: ir.Value) -> ir.Value:
    """In a pipeline: whether a row (i64) of a tile that `exists` (i1) is added to a table, of so many rows or else of
    as many as the tensor that the scatter names."""
    now = _NOW.get()
    if now is None:
        return exists
    size = next((now.sizes[hash(table)] for table in scatter.opview.like), None)
    inside = arith.andi(exists, _is_inside(row, size, rows))
    now.report(arith.andi(exists, device.flipped(inside)), now.numbers[_key(scatter)])
    return inside


def origin(index: ir.Value, count: int) -> str:
    """Where an index of a linalg body comes from, along a dimension of so many elements: KNOWN is made from loops and
    constants alone, or is one of them whatever the numbers are, DATA is made from integers that a tensor holds,
    COMPUTED from other numbers, of which an operator may take some that are outside."""
    if is_within(index, count):
        return KNOWN
    seen, stack, found = set[int](), [index], KNOWN
    while stack:
        value = stack.pop()
        if hash(value) in seen:
            continue
        seen.add(hash(value))
        if isinstance(value.owner, ir.Block):
            found = DATA if found == KNOWN else found
            continue
        op = value.owner.operation
        if op.name in _CONVERSIONS:
            found = COMPUTED
        elif op.name in ("tensor.extract", "memref.load"):
            found = DATA if found == KNOWN else found
        elif op.name.startswith("arith."):
            stack.extend(op.operands)
    return found


def _checked(extract: ir.Operation) -> bool:
    table, *indices = extract.operands
    return any(origin(index, count) == DATA for index, count in zip(indices, table.type.shape, strict=True))


def _key(op: ir.Operation) -> int:
    if op.name == "kitsune.gather_rows":
        return hash(op.operands[2])
    return hash(op.results[0]) if len(op.results) else hash(op.operands[0])


def _is_open(table: ir.Value) -> bool:
    return ir.RankedTensorType(table.type).is_dynamic_dim(0)


def _size_of(table: ir.Value) -> ir.Value | None:
    """The rows (i64) of a table that has any number of them."""
    now = _NOW.get()
    return None if now is None else now.sizes.get(hash(table))


def _kept(row: ir.Value, size: ir.Value | None, rows: int, checked: ir.Operation | None) -> ir.Value:
    """A row, or 0 where it is none of `size`, or else of `rows`; it is reported then, if an operation is checked so."""
    now, inside = _NOW.get(), _is_inside(row, size, rows)
    if now is not None and checked is not None:
        now.report(device.flipped(inside), now.numbers[_key(checked)])
    return arith.select(inside, row, arith.constant(row.type, 0))


def _is_inside(row: ir.Value, size: ir.Value | None, rows: int) -> ir.Value:
    """One unsigned comparison finds negative numbers too."""
    if size is None:
        size = arith.constant(row.type, rows)
    elif size.type != row.type:
        size = arith.index_cast(row.type, size)
    return device.below(row, size)
