"""The dimensions of a convolution's product, and how what follows it reads operands on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import ir


@dataclass(frozen=True)
class Space:
    """The dimensions of a product, by role: "b" the image, "p" the place, "o" the output channel, of block "g" where
    there are several; sizes, None where one is open until the call."""

    sizes: dict[str, int | None]

    @property
    def roles(self) -> list[str]:
        return list(self.sizes)

    @property
    def in_batches(self) -> bool:
        return "b" in self.sizes

    def map(self, roles: Sequence[str | None], further: Sequence[str] = ()) -> ir.AffineMap:
        """The map of an operand that has these dimensions; None is one of size 1."""
        all_ = [*self.roles, *further]
        exprs = [
            ir.AffineConstantExpr.get(0) if role is None else ir.AffineDimExpr.get(all_.index(role)) for role in roles
        ]
        return ir.AffineMap.get(len(all_), 0, exprs)


@dataclass(frozen=True)
class Read:
    """How an operator on images reads an operand on a product's dimensions."""

    roles: list[str | None]
    value: Callable[[], ir.Value]
