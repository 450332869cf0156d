"""The sizes of a product's kernel where some are open until the call (product_kernel.py).

Operands lie where models have them, with a batch of so many heads in parts (split_batches.py). Where several sizes are
open that are not the same, an open one is asked for of a dimension of what the kernel copies, and results have the
batch in the same parts: each open size is a dimension of its own, which is what `kitsune.result` says of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from kitsune_mlir.contraction import Roles
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.windows import in_memory, windows_of
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, tensor
from kitsune_mlir.planning.open_sizes import is_open

from .operand_layout import ends_in_zeros, has_open_lines
from .priced_product import Asked
from .reshapes import reshaped_as
from .tensor_sizes import or_dynamic, or_none


class ProductSizes:
    """Of a product whose left operand is `left`, and of which the kernel copies these tensors, with their roles, by
    "left" and "right"."""

    def __init__(self, of: Asked, left: ir.Value, copied: Mapping[str, tuple[ir.Value, Roles]]):
        self.of, self._copied = of, copied
        self._where = [(left, of.found.left_roles), (of.found.right, of.found.right_roles)]
        self.batch = self._parts()  # parts of the batch, with their sizes, where it is no dimension of an operand

    def _parts(self) -> dict[str, int]:
        of, roles = self.of, self.of.found.left_roles
        if of.several is None or "b" not in of.sizes or "b" in (*roles, *of.found.right_roles):
            return {}
        sizes = dict(zip(roles, of.several.shape(of.found.left), strict=True))
        own = [role for role in roles if role.startswith("b/")]
        return {role: sizes[role] for role in sorted(own, key=lambda role: -int(re.findall(r"\d+", role)[0]))}

    def extent(self, role: str) -> ir.Value:
        """A size, of a role or of a part of the batch."""
        size = or_none(self.batch[role]) if role in self.batch else self.of.sizes[role]
        if size is not None:
            return constant_index(size)
        if role == "b" and self.batch:
            return reduce(arith.muli, map(self.extent, self.batch))
        where = self._where
        if self.of.several is not None:  # of what is copied, whose lines may be longer than what is there
            where = [(value, roles[:-1] if _are_longer(value) else roles) for value, roles in self._copied.values()]
        for value, roles in where:
            if role in roles:
                matrix = windows_of(value)
                if matrix is not None and matrix.count is not None and role == roles[matrix.axes[0]]:
                    return tensor.dim(matrix.count, constant_index(0))
                return tensor.dim(in_memory(value), constant_index(roles.index(role)))
        raise AssertionError(role)

    def parted(self, roles: Iterable[str]) -> Roles:
        """Dimensions of results, of which the batch is its parts where it has some."""
        return tuple(part for role in roles for part in (self.batch if role == "b" and self.batch else [role]))

    def wanted(self, end: ir.Value, split: int) -> list[int]:
        """The sizes of a result, of several open ones, with those of so many parts of a sum."""
        assert self.of.several is not None
        return [split] * (split > 1) + self.of.several.shape(end)

    def result(
        self, built: ir.Value, number: int, kind: ir.RankedTensorType, wanted: Sequence[int], roles: Sequence[str]
    ) -> ir.Value:
        """A result of several open sizes, of dimensions of these roles, as of this type and of the wanted sizes."""
        assert self.of.several is not None
        plain = dict(zip(roles, wanted, strict=True))
        sizes = {part: self.batch.get(part, plain.get(part, 0)) for part in self.parted(roles)}
        apart = ir.RankedTensorType.get(list(map(or_dynamic, sizes.values())), kind.element_type)
        open_ = [self.extent(role) for role, size in sizes.items() if is_open(size)]
        result = kitsune.result(built, number, apart, open_)
        return reshaped_as(result, list(sizes.values()), wanted, self.of.several.as_value)


def _are_longer(value: ir.Value) -> bool:
    """Whether lines of what is copied are longer than what there is to multiply."""
    return has_open_lines(value) and not ends_in_zeros(value)
