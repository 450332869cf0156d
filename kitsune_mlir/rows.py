"""Row form: which leading dimensions an operator treats independently. row_cloner.py writes it on a block of rows.

A value with p *row dimensions* keeps its rows in dimensions 0 to p-1, flattened in row form to one.
An operator *streams* with p rows when the first p dimensions of its result are rows: block by block it
needs the same rows of each streamed operand, and the whole of each resident one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.systems import SYSTEMS
from kitsune_mlir.mlir import arith, attr_int, ir, tensor
from kitsune_mlir.operations import end_of, made_by, operations_of, padding_of, permutation_of, producer, slice_of

DYNAMIC = ir.ShapedType.get_dynamic_size()
RESIDENT = None

STRUCTURED = ("linalg.generic", "linalg.matmul", "linalg.transpose")
RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
_OF_FIRST = ("kitsune.firsts", "kitsune.fourier", *SYSTEMS)  # whose results have the first operand's open sizes
SUPPORT = ("tensor.empty", "linalg.fill", "arith.constant", "tensor.dim")


def shape_of(value: ir.Value) -> list[int]:
    """A ranked tensor's sizes; DYNAMIC where unknown."""
    return list(ir.RankedTensorType(value.type).shape)


def known_sizes(value: ir.Value) -> list[int | None]:
    """The sizes of a tensor, None for those that are open until the call."""
    return [None if size == DYNAMIC else size for size in shape_of(value)]


def is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def used_values(op: ir.Operation) -> list[ir.Value]:
    """Its operands and what its regions use from around it."""
    return [*op.operands, *kitsune.captures(op)]


@dataclass(frozen=True)
class Init:
    """What an output starts from: nothing, one scalar everywhere, or a tensor that is read."""

    scalar: ir.Value | None = None
    tensor: ir.Value | None = None


def init_of(value: ir.Value) -> Init:
    op = producer(value)
    if op is not None and op.name == "tensor.empty":
        return Init()
    if op is not None and op.name == "linalg.fill":
        return Init(scalar=op.operands[0])
    return Init(tensor=value)


class Structured:
    """A linalg operation through its loops: `iterators` and one indexing map an operand, `maps`, as they are said when
    it is made. Both are read when they are first asked for, which takes its time; `inputs` are its first operands."""

    maps: list[ir.AffineMap]
    iterators: list[str]

    def __init__(self, op: ir.Operation):
        self.op = op.operation
        if op.name == "linalg.transpose":
            permutation = permutation_of(op)
            rank = len(permutation)
            source = [ir.AffineDimExpr.get(permutation.index(d)) for d in range(rank)]
            self.maps = [ir.AffineMap.get(rank, 0, source), ir.AffineMap.get_identity(rank)]
            self.iterators = ["parallel"] * rank
            self.inputs = 1
        else:
            attributes = op.attributes
            self._said = {"maps": attributes["indexing_maps"]}
            self.inputs = attributes["operandSegmentSizes"][0]
            if op.name == "linalg.matmul":
                self.iterators = ["parallel", "parallel", "reduction"]
            else:
                self._said["iterators"] = attributes["iterator_types"]

    def __getattr__(self, name: str) -> list[Any]:
        if name not in ("maps", "iterators"):
            raise AttributeError(name)
        if name == "maps":
            self.maps = [attribute.value for attribute in self._said["maps"]]
        else:
            kinds = str(self._said["iterators"]).split(">")[:-1]  # one print: each takes its time
            self.iterators = ["reduction" if "reduction" in kind else "parallel" for kind in kinds]
        return self.__dict__[name]

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def given(self) -> list[ir.Value]:
        """Its inputs."""
        return list(self.op.operands)[: self.inputs]

    @property
    def reads_start(self) -> bool:
        """Whether its body reads what its last output starts from."""
        return bool(list(list(self.body.arguments)[-1].uses))

    @property
    def reductions(self) -> list[int]:
        """Its loops that sum, or join otherwise."""
        return [loop for loop, kind in enumerate(self.iterators) if kind == "reduction"]

    def reads(self) -> list[int]:
        """Operands whose values matter: the inputs, and outputs that start from a tensor."""
        outputs = range(self.inputs, len(self.op.operands))
        return [*range(self.inputs), *(i for i in outputs if init_of(self.op.operands[i]).tensor is not None)]

    def is_elementwise(self) -> bool:
        """Whether it computes each element of its results at the same place of its loops, of one tensor or several."""
        identity = ir.AffineMap.get_identity(len(self.iterators))
        return "reduction" not in self.iterators and all(map_ == identity for map_ in self.maps[self.inputs :])

    def is_of_elements(self) -> bool:
        """The same of its inputs' elements alone: its body asks for no place, and reads no tensor by number."""
        reads = self.reads() == list(range(self.inputs))
        return self.is_elementwise() and not self.index_ops() and not self.tables() and reads

    def row_loops(self, p: int) -> list[int] | None:
        """The loops that walk the first p dimensions of every output; None if those are not p plain
        parallel loops."""
        found: list[int] | None = None
        for map_ in self.maps[self.inputs :]:
            loops = [dim_of(expr) for expr in list(map_.results)[:p]]
            if len(loops) < p or None in loops or len(set(loops)) < p:
                return None
            if any(self.iterators[loop] != "parallel" for loop in loops) or found not in (None, loops):
                return None
            found = loops
        return found

    def index_ops(self) -> list[ir.Operation]:
        return operations_of(self.body, "linalg.index")

    def gathers(self) -> bool:
        return bool(self.tables())

    def asks_for_sizes(self) -> bool:
        """Whether the body takes from around it what is made of open sizes, as a number or as what a tensor is filled
        with, other than the rows of its own tables, from whose end it may count."""
        asked = [op.operation.results[0] for op in self.body.operations if op.operation.name == "tensor.dim"]
        filled = [scalar for value in self.op.operands if (scalar := init_of(value).scalar) is not None]
        return any(self._is_of_sizes(value) for value in [*kitsune.captures(self.op), *asked, *filled])

    def _is_of_sizes(self, number: ir.Value) -> bool:
        op = producer(number)
        if is_tensor(number) or op is None:
            return False
        if op.name == "tensor.dim":
            axis = producer(op.operands[1])
            first = axis is not None and axis.name == "arith.constant" and attr_int(axis, "value") == 0
            return not first or op.operands[0] not in self.tables()
        return op.name.startswith(("arith.", "affine.")) and any(map(self._is_of_sizes, op.operands))

    def tables(self) -> list[ir.Value]:
        """The tensors that the body takes elements out of, of whatever row it says; one for each element."""
        return [op.operation.operands[0] for op in self.body.operations if op.operation.name == "tensor.extract"]


def dim_of(expr: ir.AffineExpr) -> int | None:
    """The loop that an index is; None for any other expression."""
    return ir.AffineDimExpr(expr).position if isinstance(expr, ir.AffineDimExpr) else None


def is_first(expr: ir.AffineExpr) -> bool:
    """Whether an index is 0, as that of a dimension of one element."""
    return isinstance(expr, ir.AffineConstantExpr) and expr.value == 0


def loops_of(expr: ir.AffineExpr) -> set[int]:
    """The loops an index expression depends on."""
    if isinstance(expr, ir.AffineDimExpr):
        return {expr.position}
    if isinstance(expr, ir.AffineBinaryExpr):
        return loops_of(expr.lhs) | loops_of(expr.rhs)
    return set()


def operand_rows(op: ir.Operation, p: int) -> list[int | None] | str:
    """For a result with p row dimensions: the row dimensions of every operand (RESIDENT for one read
    whole), or the reason why the operator does not treat these rows independently."""
    if op.name in STRUCTURED:
        return _structured_rows(Structured(op), p)
    if op.name in RESHAPES:
        return _reshape_rows(op, p)
    if op.name == "tensor.concat":
        dim = attr_int(op, "dim")
        return [p] * len(op.operands) if p <= dim else "concatenates along the rows"
    if op.name == "tensor.extract_slice":
        return _slice_rows(op, p)
    if op.name == "linalg.batch_matmul":
        return "both operands of the product change with the row"
    if op.name.startswith("linalg.conv") or op.name.startswith("linalg.pooling"):
        return "its window crosses rows"
    return f"{op.name} is not known to treat rows independently"


def _structured_rows(s: Structured, p: int) -> list[int | None] | str:
    loops = s.row_loops(p)
    if loops is None:
        return "reduces or permutes the rows"
    if any(attr_int(op, "dim") in loops for op in s.index_ops()):
        return "reads the row number"
    rows: list[int | None] = [p] * len(s.op.operands)
    for i in range(s.inputs):
        exprs = list(s.maps[i].results)
        rest = set().union(*(loops_of(expr) for expr in exprs[p:]), set())
        if [dim_of(expr) for expr in exprs[:p]] == loops and not rest & set(loops):
            rows[i] = p
        elif not set().union(*(loops_of(expr) for expr in exprs), set()) & set(loops):
            rows[i] = RESIDENT
        else:
            return "reads other rows than the one it writes"
    changing = [value for value, row in zip(s.op.operands, rows[: s.inputs]) if row is not RESIDENT]
    if all(init_of(value).tensor is None for value in changing):
        return "reads nothing that changes with the row"
    return rows


def reduces_rows(op: ir.Operation) -> list[int | None] | None:
    """If the operator sums over rows held in dimension 0 of its streamed operands: the row dimensions
    of every operand (1, or RESIDENT), outputs included as RESIDENT. Else None, also where the sums' number is open:
    each of several CTAs has sums of its own, which have a place."""
    if op.name not in ("linalg.generic", "linalg.matmul"):
        return None
    s = Structured(op)
    if s.gathers() or s.index_ops() or len(op.results) != 1 or not _is_sum(s) or DYNAMIC in shape_of(op.results[0]):
        return None
    reductions = s.reductions
    if len(reductions) != 1 or init_of(op.operands[s.inputs]).scalar is None:
        return None
    rows: list[int | None] = [RESIDENT] * len(op.operands)
    for i in range(s.inputs):
        exprs = list(s.maps[i].results)
        if exprs and dim_of(exprs[0]) == reductions[0]:
            rows[i] = 1
        elif set().union(*(loops_of(expr) for expr in exprs), set()) & set(reductions):
            return None
    return rows if any(rows) else None


def _is_sum(s: Structured) -> bool:
    """Whether the body yields out + something that does not read out."""
    if s.op.name == "linalg.matmul":
        return True
    out = list(s.body.arguments)[-1]
    last = producer(end_of(s.body).operands[0])
    uses = list(out.uses)
    return last is not None and last.name == "arith.addf" and len(uses) == 1 and uses[0].owner.operation == last


def groups_of(op: ir.Operation) -> list[list[int]]:
    """Which dimensions of the longer shape a reshape makes each of the shorter one of."""
    return [[ir.IntegerAttr(d).value for d in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


def undoes(collapse: ir.Operation, expand: ir.Operation) -> bool:
    """Whether a tensor.collapse_shape gives the tensor again that the tensor.expand_shape in front of it was given: of
    two types that are the same, with several open sizes, one may be that of `[4 * a, b]`, one that of `[a, 4 * b]`."""
    return bool(collapse.results[0].type == expand.operands[0].type) and keeps_open(collapse, expand)


def keeps_open(collapse: ir.Operation, expand: ir.Operation) -> bool:
    """Whether the open sizes that a tensor.collapse_shape gives are, in their order, those of the tensor that the
    tensor.expand_shape in front of it was given; of a single one, that depends on the other sizes alone."""
    middle, own, given = shape_of(expand.results[0]), shape_of(expand.operands[0]), shape_of(collapse.results[0])

    def made_of(shape: list[int], groups: list[list[int]]) -> list[tuple[list[int], int]]:
        parts = [group for size, group in zip(shape, groups, strict=True) if size == DYNAMIC]
        return [
            ([d for d in g if middle[d] == DYNAMIC], prod(middle[d] for d in g if middle[d] != DYNAMIC)) for g in parts
        ]

    few = own.count(DYNAMIC) < 2 and given.count(DYNAMIC) < 2
    return few or made_of(own, groups_of(expand)) == made_of(given, groups_of(collapse))


def _reshape_rows(op: ir.Operation, p: int) -> list[int | None] | str:
    groups = groups_of(op)
    if op.name == "tensor.collapse_shape":
        return [sum(len(group) for group in groups[:p]) - single_columns(op, p)]
    sizes = [0]
    for group in groups:
        sizes.append(sizes[-1] + len(group))
    if p not in sizes:
        return "splits the rows"
    return [sizes.index(p), *([RESIDENT] * (len(op.operands) - 1))]


def single_columns(op: ir.Operation, p: int) -> int:
    """Dimensions of size 1 behind the rows of what a tensor.collapse_shape makes a tensor of rows alone of."""
    groups, shape = groups_of(op), shape_of(op.operands[0])
    if len(groups) != p or p == 0:
        return 0
    units = [d for d in groups[-1][1:] if shape[d] == 1]
    return len(units) if units == groups[-1][1:] else 0


def _slice_rows(op: ir.Operation, p: int) -> list[int | None] | str:
    offsets, sizes, strides = slice_of(op)
    source = shape_of(op.operands[0])
    if len(shape_of(op.results[0])) != len(source):
        return "drops dimensions"
    if any(offsets[:p]) or any(stride != 1 for stride in strides[:p]) or sizes[:p] != source[:p]:
        return "takes some of the rows"
    if DYNAMIC in [*offsets[p:], *sizes[p:], *strides[p:]]:
        return "has a dynamic slice"
    if DYNAMIC in sizes[:p] and not is_all_of(op, p):
        return "may take some of the rows"
    return [p, *([RESIDENT] * (len(op.operands) - 1))]


def is_all_of(op: ir.Operation, p: int) -> bool:
    """Whether the dynamic sizes of a slice, of its first `p` dimensions alone, are known to be those of the tensor."""
    dims = [d for d, size in enumerate(slice_of(op).sizes[:p]) if size == DYNAMIC]
    return all(is_size_of(size, op.operands[0], d) for d, size in zip(dims, list(op.operands)[1:], strict=True))


def size_of(value: ir.Value, d: int) -> ir.Value:
    """An open size of a tensor, at the insertion point, as what makes it was told: who asks for it does not wait for
    the tensor then, and it is not written for that."""
    found = source_of_size(value, d)
    if isinstance(found, ir.Value):
        return found
    return tensor.dim(found[0], arith.ConstantOp.create_index(found[1]).result)


def is_size_of(number: ir.Value, value: ir.Value, d: int) -> bool:
    """Whether a number is known to be an open size of a tensor."""
    return _source_of_number(number) == _source_of_number(source_of_size(value, d))


def _source_of_number(number: ir.Value | tuple[ir.Value, int]) -> ir.Value | tuple[ir.Value, int]:
    """What a number is, which may be the size of a tensor that was told it; see source_of_size."""
    op = producer(number) if isinstance(number, ir.Value) else None
    while op is not None and op.name == "tensor.dim":
        place = made_by(op.operands[1], "arith.constant")
        if place is None:
            break
        number = source_of_size(op.operands[0], attr_int(place, "value"))
        op = producer(number) if isinstance(number, ir.Value) else None
    return number


def operand_of_sizes(value: ir.Value) -> ir.Value | None:
    """The operand whose open sizes a result of an operation of ours has."""
    op = producer(value)
    if op is None or op.name not in (*_OF_FIRST, "kitsune.recurrent"):
        return None
    number = ir.OpResult(value).result_number
    return op.operands[number + 2 if number and op.name == "kitsune.recurrent" else 0]


def source_of_size(value: ir.Value, d: int) -> ir.Value | tuple[ir.Value, int]:
    """The same: a number, or the dimension of a tensor of which no more is known."""
    op, kind = producer(value), ir.RankedTensorType(value.type)
    if op is not None and op.name in ("tensor.empty", "tensor.expand_shape"):
        first = op.name == "tensor.expand_shape"
        return op.operands[first + sum(map(kind.is_dynamic_dim, range(d)))]
    if op is not None and op.name == "tensor.collapse_shape":
        long = [axis for axis in groups_of(op)[d] if shape_of(op.operands[0])[axis] != 1]
        if len(long) == 1:
            return source_of_size(op.operands[0], long[0])
    if op is not None and op.name == "tensor.extract_slice" and len(slice_of(op).sizes) == kind.rank:
        _, sizes, steps = slice_of(op)
        first = len(op.operands) - [*sizes, *steps].count(DYNAMIC)
        return op.operands[first + sizes[:d].count(DYNAMIC)]
    if op is not None and (operand := operand_of_sizes(value)) is not None:
        return source_of_size(operand, d)
    if op is not None and op.name == "tensor.pad":
        if all(each[d] == 0 for each in padding_of(op)):
            return source_of_size(op.operands[0], d)
    if op is not None and op.name.startswith(("linalg.", "tm_tensor.")):
        number = ir.OpResult(value).result_number
        return source_of_size(op.operands[len(op.operands) - len(op.results) + number], d)
    return value, d
