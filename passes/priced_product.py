"""A product outside pipelines, with what its kernel's price depends on (schedule_products.py, gated_products.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.contraction import Contraction, Roles, is_zero_filled
from kitsune_mlir.dialects.windows import in_memory, windows_of
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.cut import KERNEL_US
from kitsune_mlir.planning.kernel_cost import dram_us, memory_us
from kitsune_mlir.planning.patch_tiles import choose_patches
from kitsune_mlir.planning.product_tiles import (
    CLUSTERS,
    MOST_SPLIT,
    PAIRS,
    ProductTiles,
    choose,
)
from kitsune_mlir.planning.product_widths import COLUMNS, NO_WINDOWS, WindowChunks, layer_widths
from kitsune_mlir.planning.target import Target
from kitsune_mlir.precision import tf32_pieces
from kitsune_mlir.traffic import element_bytes, tensor_bytes
from kitsune_mlir.weights import is_weight

from .operand_layout import GRANULE, has_open_lines
from .product_follows import AHEAD, Follows, leaves_by_rows, matrices_of, stored_bytes, vector_bytes, work_of
from .single_products import NAME
from .split_batches import is_batch
from .tensor_sizes import TensorSizes


@dataclass(frozen=True)
class Asked:
    """The product that a kernel is built for: the operation and what it multiplies, the kernel's name, and by role the
    product's sizes, None where one is open until the call. Each operand is `pieces` numbers of 16 bits, or one, or
    `words` of f32 that are multiplied as tf32. `beside` are products of the same left operand, of as many columns,
    whose tiles the kernel has beside the first one's: what follows takes all of them. Where several sizes are open that
    are not the same, `several` knows those of tensors."""

    op: ir.Operation
    found: Contraction
    target: Target
    name: str
    sizes: dict[str, int | None]
    pieces: int
    words: bool = False
    beside: tuple[tuple[ir.Operation, Contraction], ...] = ()
    several: TensorSizes | None = None


@dataclass(kw_only=True)
class PricedProduct:
    """What an operation multiplies, on which target, and by role the sizes, None where one is open until the call, and
    those of the example."""

    op: ir.Operation
    found: Contraction
    target: Target
    sizes: dict[str, int | None] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)
    _weights: dict[ir.Value, bool] = field(default_factory=dict, init=False, compare=False)  # whether operands are any

    def read_sizes(self) -> None:
        """Fills `sizes` and `examples`."""
        found = self.found
        for value, roles in ((found.left, found.left_roles), (found.right, found.right_roles)):
            kind, examples = ir.RankedTensorType(value.type), example_sizes.shape_of(value)
            for d, role in enumerate(roles):
                self.examples[role] = examples[d]
                self.sizes[role] = None if kind.is_dynamic_dim(d) else kind.shape[d]

    @property
    def taken(self) -> dict[str, int]:
        """The sizes by role, those of the example where they are open until the call."""
        return {role: self.examples[role] if size is None else size for role, size in self.sizes.items()}

    @property
    def open_(self) -> str:
        """Which of the sizes is open until the call; none where only the length of sums is."""
        return next((role for role, size in self.sizes.items() if size is None and role in "bmn"), "")

    @property
    def known(self) -> tuple[int, int, int, int]:
        """The sizes of batch, rows, columns and the sum, as they are taken to be."""
        found = self.taken
        return found.get("b", 1), found["m"], found["n"], found["k"]

    @property
    def across(self) -> bool:
        """Whether the columns of the right operand are neighbours in memory, and are copied so."""
        return self._is_across(frozenset())

    def _is_across(self, made: frozenset[str]) -> bool:
        return self.found.right_roles[-1] == "n" and (not self.words or "right" in made)

    def tiles(self, follows: Follows, split_k: int = 0, **form: Any) -> ProductTiles | None:
        """The fastest tiles of the product with what follows it; those of clusters of `split_k` CTAs, which share the
        sum over k, where there are such. `form` is asked of the choice besides. Their time is with that of kernels
        which prepare operands, but where it is faster that this is done in the product's own."""
        plain, before = self._chosen(follows, split_k, **form), self.before_us()
        if plain is None:
            return None
        patches = self._patches(follows) if not form and not split_k else None
        if patches is not None and patches.microseconds < plain.microseconds:
            plain = patches
        if not before:
            return plain
        if ("rights" not in form or not self.words) and self.target.has_warpgroups and self.sizes["k"] is not None:
            made = self._chosen(follows, split_k, made=frozenset(self._prepared), **form)
            if made is not None and self._us(made) < self._us(plain) + before:
                return made
        return replace(plain, microseconds=plain.microseconds + before)

    def whole_tiles(self, work: float) -> ProductTiles | None:
        """The fastest tiles of all columns, where so many instructions deal with each element of them."""
        given: dict[str, Any] = {"whole": True, "words": self.words, "short": self.short(), "open_": self.open_}
        given["windows"] = self._windows
        tiles = choose(*self.known, self.across, len(PAIRS[self.pieces]), self.target, work=work, **given)
        return None if tiles is None else replace(tiles, microseconds=tiles.microseconds + self.before_us())

    def before_us(self) -> float:
        """What kernels take that turn operands of f32, or make their pieces, with each call."""
        moved = [
            nbytes * (8 if self.words else 4 + 2 * self.pieces) / 4 for nbytes in self._once(self._prepared).values()
        ]
        target = self.target
        alone = KERNEL_US + target.launch_us
        return sum(alone + memory_us(each, target) for each in moved)

    @property
    def _roles(self) -> dict[str, Roles]:
        return {"left": self.found.left_roles, "right": self.found.right_roles}

    @property
    def _computed(self) -> dict[str, int]:
        """The operands of f32 that are no weights, and their bytes; of windows those of the images."""
        found = {"left": in_memory(self.found.left), "right": in_memory(self.found.right)} if self._is_wide else {}
        return {name: tensor_bytes(value) for name, value in found.items() if not self._is_weight(value)}

    def _is_weight(self, operand: ir.Value) -> bool:
        if operand not in self._weights:
            self._weights[operand] = is_weight(operand)
        return self._weights[operand]

    @property
    def _prepared(self) -> dict[str, int]:
        """Those of them that products do not take as they are."""
        return {name: own for name, own in self._computed.items() if not self.words or self._roles[name][-1] != "k"}

    def _once(self, found: dict[str, int]) -> dict[str, int]:
        """Each tensor once: both operands may be the same one."""
        return found if self.found.left != self.found.right else dict(list(found.items())[-1:])

    def _us(self, tiles: ProductTiles) -> float:
        """What the kernel alone takes, or DRAM for it."""
        nbytes = tensor_bytes(self.op.results[0])
        for name, own in self._once(self._computed).items():
            nbytes += own * (1 if self.words or name in tiles.made else self.pieces / 2)
        return max(tiles.microseconds, self.target.launch_us + dram_us(nbytes, self.target))

    def _chosen(self, follows: Follows, split_k: int, **form: Any) -> ProductTiles | None:
        known = self.sizes["k"] is not None
        chosen = partial(
            choose,
            *(*self.known, self._is_across(form.get("made", frozenset())), len(PAIRS[self.pieces]), self.target),
            words=self.words,
            most_split=MOST_SPLIT,
            work=work_of(follows),
            shared=self.shared(),
            stored_bytes=stored_bytes(self.op, follows) if known and self.pieces == 1 else 0,
            vector_bytes=vector_bytes(follows, self.known[2]),
            aligned=self._is_weight(self.found.right),
            results=max(1, len(follows.stored)),
            by_rows=(known or self.sizes["n"] is None) and leaves_by_rows(self.op, follows, self.target),
            short=self.short(follows.ops),
            open_=self.open_,
            windows=self._windows,
        )
        if NAME in self.op.attributes:
            shared = CLUSTERS if known else (1,)
            chosen = partial(chosen, widths=layer_widths(self.known[2]), most_split=1, clusters=shared)
        read = len(matrices_of([self.op], follows)) if self.words else 0
        widths = chosen.keywords.get("widths", COLUMNS)
        if narrow := tuple(width for width in widths if read and width * read <= AHEAD):
            chosen = partial(chosen, widths=narrow)  # what sums of 256 columns leave no registers for is read by and by
        if split_k and known:
            asked = chosen(most_split=1, clusters=(split_k,))
            if asked is not None:
                return asked
        return chosen(**form)

    def _patches(self, follows: Follows) -> ProductTiles | None:
        """The fastest tiles that are patches of images, of a convolution's product that has any."""
        across = windows_of(self.found.right) is not None
        matrix = windows_of(self.found.right if across else self.found.left)
        if matrix is None or matrix.count is not None or "pitches" in matrix.attributes:
            return None
        if self.pieces > 1 or self.across:
            return None
        if (self.found.left_roles if across else self.found.right_roles) != (("m" if across else "n"), "k"):
            return None
        reads = [map_ for op in follows.ops for map_ in rows.Structured(op).maps]
        places = [[e.position for e in map_.results if isinstance(e, ir.AffineDimExpr)] for map_ in reads]
        if any(dims != sorted(dims) for dims in places):
            return None  # rows of a tile would be columns of what is read
        b, m, n, _ = self.known
        images, outputs = (b, m) if across else (b * m // matrix.windows.count, n)
        kinds = [ir.RankedTensorType(one.results[0].type) for one in follows.stored or [self.op]]
        widths = {element_bytes(kind.element_type) for kind in kinds}
        stored = min(widths) if len(widths) == 1 and n * min(widths) % GRANULE == 0 else 0
        given = (self.target, across, self.words, work_of(follows), stored, vector_bytes(follows, n))
        return choose_patches(images, outputs, matrix.windows, *given)

    @property
    def _windows(self) -> WindowChunks:
        """How an operand comes that is a matrix of windows."""
        operands = {"left": self.found.left, "right": self.found.right}
        for name, matrix in ((name, windows_of(value)) for name, value in operands.items()):
            if matrix is not None:
                return matrix.windows.chunks(name, matrix.pitches[:-1], 2 if self.words else 1)
        return NO_WINDOWS

    def shared(self) -> frozenset[str]:
        """The operands that are the same throughout the batch, and of a length that is known."""
        roles = {"left": self.found.left_roles, "right": self.found.right_roles}
        own = {"left": "m", "right": "n"}
        known = [name for name in roles if self.sizes[own[name]] is not None and self.sizes["k"] is not None]
        return frozenset(name for name in known if not any(map(is_batch, roles[name])) or self.sizes.get("b") == 1)

    def short(self, follows: Sequence[ir.Operation] = ()) -> frozenset[str]:
        """The operands whose boxes may end with the tensor's last row: where their rows are rows of boxes, of a number
        that is known, in memory, and where no number that is computed of what lies behind is a row of a table."""
        inner = (inner.operation.name for op in follows for inner in op.regions[0].blocks[0].operations)
        if "tensor.extract" in inner:
            return frozenset()
        operands = {"left": (self.found.left, "m"), "right": (self.found.right, "n")}
        roles = {"left": self.found.left_roles, "right": self.found.right_roles}
        return frozenset(
            name
            for name, (value, own) in operands.items()
            if self.sizes[own] is not None and in_memory(value) == value and (self.words or roles[name][-1] == "k")
        )

    @property
    def pieces(self) -> int:
        """How many numbers of bf16 stand for one of the operands; 1 where these have 16 bits, or are multiplied as they
        are."""
        return tf32_pieces(self.op) + 1 if self._is_wide and not self.words else 1

    @property
    def words(self) -> bool:
        """Whether operands of f32 are multiplied as tf32 numbers, from rows along k."""
        if not self._is_wide or tf32_pieces(self.op) > 1:
            return False
        if not self.target.has_warpgroups or self.sizes["k"] is None:
            return False
        return all(roles[-1] == "k" or not _is_cut(roles) for roles in self._roles.values())

    @property
    def _is_wide(self) -> bool:
        return isinstance(element_type(self.found.left), ir.F32Type)

    def check(self) -> None:
        """Raises UnsupportedError where it has no kernel on tensor cores."""
        self.check_alone()
        if sum(size is None for size in self.sizes.values()) > 1:
            raise UnsupportedError("two of its sizes are open until the call")
        for value in filter(has_open_lines, (self.found.left, self.found.right, self.op.results[0])):
            raise UnsupportedError(f"a size of {value.type} that is open until the call is its last")

    def check_alone(self) -> None:
        """Raises UnsupportedError where it has no kernel on tensor cores of its own, whichever sizes are open until the
        call."""
        self.check_kind()
        vectors = 1 in (self.sizes["m"], self.sizes["n"]) and self.found.numbers is None
        if self.known[0] > self.target.sms and vectors:
            raise UnsupportedError("it multiplies a vector for each of many numbers of a batch, and a tile is 64 rows")

    def check_kind(self) -> None:
        """Raises UnsupportedError where no kernel on tensor cores multiplies it, alone or with others."""
        left, right = (ir.RankedTensorType(value.type) for value in (self.found.left, self.found.right))
        element = left.element_type
        if not isinstance(element, ir.BF16Type | ir.F16Type | ir.F32Type) or right.element_type != element:
            raise UnsupportedError(f"it multiplies {left.element_type} with {right.element_type}")
        if not isinstance(element_type(self.op.results[0]), ir.F32Type):
            raise UnsupportedError("its sums are no f32")
        if not is_zero_filled(self.found.init):
            raise UnsupportedError("its sums do not begin at zero")
        if 0 in self.sizes.values():
            raise UnsupportedError("it multiplies nothing")
        for roles in (self.found.left_roles, self.found.right_roles):
            if not {"m", "n", "k"} & {roles[-1]}:
                raise UnsupportedError("the last dimension of an operand is its batch")


def _is_cut(roles: Roles) -> bool:
    """Whether dimensions are parts of others."""
    return any(len(role) > 1 for role in roles)
