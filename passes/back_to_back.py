"""Products of what elementwise operators make of other products: which operators belong together.

    %s = linalg.batch_matmul ins(%q, %k) ...                                    // b x m x n
    %d = linalg.batch_matmul ins(%g, %v) ...
    %p = linalg.generic ... exp(%s - %l)
    %e = linalg.generic ... %p * (%d - %t)
    %y = linalg.batch_matmul ins(%e, %k) ...                                    // a sum over n: straight
    %z = linalg.batch_matmul ins(%p transposed, %g) ...                         // a sum over m: turned

So are the gradients of attention. What lies between the products is not read by anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TypeVar

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, Roles, match_product
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import in_block_order, ir

from .row_groups import Member, Space, fit, root, users
from .split_batches import lies
from .tensor_sizes import Shape, TensorSizes

T = TypeVar("T", "Product", Member)
NAMES = ("linalg.batch_matmul", "linalg.matmul")


@dataclass(frozen=True)
class Product:
    """A product with what it multiplies."""

    op: ir.Operation
    found: Contraction

    @property
    def result(self) -> ir.Value:
        return self.op.results[0]

    @property
    def is_straight(self) -> bool:
        """Whether a second product sums over the columns of what it takes."""
        return self.found.left_roles[-1] == "k"

    @property
    def given(self) -> ir.Value:
        """The result that is a second product's left operand."""
        return root(self.found.left)


@dataclass(frozen=True)
class Between:
    """Products `firsts` of b x m x n; `members`, in program order and by their results, elementwise operators that take
    their elements; `seconds`, products of which these give the left operand."""

    space: Space
    batch: int
    firsts: tuple[Product, ...]
    members: Mapping[ir.Value, Member]
    seconds: tuple[Product, ...]

    @property
    def ops(self) -> list[ir.Operation]:
        """All operators, as none stands in front of what it takes."""
        between = [member.op for member in self.members.values()]
        return [*(one.op for one in self.firsts), *between, *(one.op for one in self.seconds)]

    def only(self, seconds: Sequence[Product]) -> Between:
        """What these products take."""
        needed = {second.given for second in seconds}
        for result, member in reversed(self.members.items()):
            if result in needed:
                needed |= set(map(root, member.op.operands))
        kept = {result: member for result, member in self.members.items() if result in needed}
        firsts = tuple(one for one in self.firsts if one.result in needed)
        return Between(self.space, self.batch, firsts, kept, tuple(seconds))


def product_of(op: ir.Operation | None) -> Product | None:
    """The product that an operation is, or None."""
    if op is None or op.name not in NAMES or (found := match_product(op)) is None:
        return None
    return Product(op, found)


def between_of(
    second: ir.Operation, sizes: TensorSizes, walk_of: Callable[[Space, int, TensorSizes], Walk] | None = None
) -> Between | None:
    """What a product stands behind, with all that takes part in it; None where the product takes nothing that operators
    make of products. Raises UnsupportedError where what is between them is read by others too. `walk_of` may keep the
    walks of a program that does not change between the calls."""
    product = product_of(second)
    made = None if product is None else _left_maker(product)
    if product is None or made is None or made.name != "linalg.generic":
        return None
    shape = sizes.shape(product.found.left)
    *outer, count, columns = shape
    if product.found.left_roles not in (("b", "m", "k"), ("b", "k", "m"), ("m", "k"), ("k", "m")):
        return None
    space = Space(False, prod(outer) * count, columns)
    walk = (walk_of or Walk)(space, prod(outer), sizes)
    return walk.found(made) if walk.leads_to_product(made) else None


class Walk:
    """Goes from one operator to all that belong to it."""

    def __init__(self, space: Space, batch: int, sizes: TensorSizes):
        self.space, self.batch, self.sizes = space, batch, sizes
        self._known: dict[ir.Value, bool] = {}
        self._members: dict[ir.Value, Member | None] = {}

    def leads_to_product(self, op: ir.Operation) -> bool:
        """Whether an operator takes elements of a product, perhaps by others."""
        waiting = [op]
        while waiting:  # no recursion: behind each other may be the thousands of operators of a recurrent layer's steps
            current = waiting[-1]
            unknown = [one for one in self._before(current) if one.results[0] not in self._known]
            if current.results[0] in self._known or not unknown:
                waiting.pop()
                self._known[current.results[0]] = any(
                    self._first(made) is not None or self._known[made.results[0]] for made in self._makers(current)
                )
            else:
                waiting += unknown
        return self._known[op.results[0]]

    def _before(self, op: ir.Operation) -> Iterator[ir.Operation]:
        """The operators of which must be known first whether they lead to products."""
        for made in self._makers(op):
            yield made
            if (product := self._of_space(made)) is not None and (left := _left_maker(product)) is not None:
                yield left

    def found(self, seed: ir.Operation) -> Between:
        """All that belongs to an operator. Raises UnsupportedError where something else takes part in it."""
        firsts, members, seconds = dict[ir.Value, Product](), dict[ir.Value, Member](), dict[ir.Value, Product]()
        left = [seed]
        while left:
            op = left.pop()
            if not len(op.results):
                raise UnsupportedError(f"{op.name} takes what is between products, too")
            result = op.results[0]
            if result in firsts or result in members or result in seconds:
                continue
            if (first := self._first(op)) is not None:
                firsts[result] = first
            elif (member := self._member(op)) is not None:
                members[result] = member
                left += [made for made in self._makers(op) if self._first(made) or self.leads_to_product(made)]
            elif (second := self._second(op, members)) is not None:
                seconds[result] = second
                continue
            else:
                raise UnsupportedError(f"{op.name} takes what is between products, too")
            left += users(result)
        own, behind = (tuple(_in_order(found).values()) for found in (firsts, seconds))
        return Between(self.space, self.batch, own, _in_order(members), behind)

    def _first(self, op: ir.Operation) -> Product | None:
        """The product of the space's rows and columns that an operation is, and that itself takes none."""
        product = self._of_space(op)
        made = None if product is None else _left_maker(product)
        return None if made is not None and self.leads_to_product(made) else product

    def _of_space(self, op: ir.Operation) -> Product | None:
        product = product_of(op)
        if product is None or product.found.numbers is not None:
            return None
        *outer, count, columns = self.sizes.shape(product.result)
        is_fitting = (prod(outer), prod(outer) * count, columns) == (self.batch, self.space.rows, self.space.columns)
        return product if is_fitting else None

    def _second(self, op: ir.Operation, members: Mapping[ir.Value, Member]) -> Product | None:
        product = product_of(op)
        if product is None or root(product.found.left) not in members:
            return None
        others = [product.found.right, product.found.init]
        return None if any(root(value) in members for value in others) else product

    def _member(self, op: ir.Operation) -> Member | None:
        if op.name != "linalg.generic":
            return None
        if (result := op.results[0]) not in self._members:
            member = fit(op, self.space, self.sizes.shape)
            self._members[result] = member if member is not None and member.kind == "tile" else None
        return self._members[result]

    def _makers(self, op: ir.Operation) -> Iterator[ir.Operation]:
        """What makes the operands of a member that have all rows and columns; nothing for what is none."""
        member = self._member(op)
        for value, role in () if member is None else zip(member.op.operands, member.roles):
            if role is not None and role.columns and member.is_whole(role):
                if (made := rows.producer(root(value))) is not None:
                    yield made


def _left_maker(product: Product) -> ir.Operation | None:
    return rows.producer(root(product.found.left))


def _in_order(found: Mapping[ir.Value, T]) -> dict[ir.Value, T]:
    """Products or members, by their results, in program order."""
    return {op.results[0]: found[op.results[0]] for op in in_block_order(one.op for one in found.values())}


Place = tuple[ir.Value, Roles]


def place_of(value: ir.Value, roles: Roles, shape: Shape, named: Mapping[str, str] = MappingProxyType({})) -> Place:
    """Where an operand lies: the tensor, and the roles of its dimensions, some of which are `named` otherwise."""
    found, dims = lies(value, tuple(named.get(role, role) for role in roles), 0, shape)
    return found, tuple(dim.name for dim in dims)


def sources(of: Between, shape: Shape, is_turned: bool = False) -> list[int]:
    """For each second the number of the first that multiplies the same, whose columns the second's rows are; -1 where
    there is none. Of what `is_turned` firsts multiply their left operands as right ones."""
    rights = []
    for first in of.firsts:
        found, named = first.found, {"m": "n"}
        if is_turned:
            rights.append(place_of(found.left, found.left_roles, shape, named))
        else:
            rights.append(place_of(found.right, found.right_roles, shape))
    found = []
    for second in of.seconds:
        place = place_of(second.found.right, second.found.right_roles, shape, {"k": "n", "n": "k"})
        found.append(rights.index(place) if place in rights else -1)
    return found
