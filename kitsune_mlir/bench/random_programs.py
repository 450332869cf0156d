"""Random tensor programs by seed: straight lines of torch operators, most of which no model has beside one another.

What is drawn is plain data. A program is drawn by running it: each operator is tried on float64, once on the values and
once on values that are a little off, as rounding has them. It stays if torch takes it, and if its result is finite and
does not depend on what is off: so no comparison is close, and float64 is a reference for 16 bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

from .program_functions import FUNCTIONS, MOVES

_HOMES = {"torch": torch, "F": F, "Tensor": Tensor, "special": torch.special, "linalg": torch.linalg}
_OFF = 2.0**-9  # relative; what rounding is taken to do to each result
_MOST_OFF = 0.03  # relative to a result's norm
_MOST, _TAME, _LEAST = 2e3, 3.0, 0.1  # the largest number, the largest and the least root mean square
# Elements of a tensor at most, and how often so.
_SIZES = {1_000: 4, 10_000: 4, 100_000: 8, 1_000_000: 2, 4_000_000: 1}
_SMALL = {200: 1, 1_000: 1, 3_000: 1}  # for the simulator


@dataclass(frozen=True)
class Ref:
    """A value among a step's arguments: a program's inputs have the first numbers, then its weights, then results."""

    number: int


@dataclass(frozen=True)
class Given:
    """An input or a weight: of normal numbers, or of integers below a number. `value` is which of the values of the
    program it was as that was drawn: what it is made of, with a seed."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    below: int
    value: int

    def make(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(1_000 * seed + self.value)
        if self.below:
            return torch.randint(self.below, self.shape, generator=generator).to(self.dtype)
        return torch.randn(self.shape, generator=generator).to(self.dtype)


@dataclass(frozen=True)
class Step:
    """A call: a function by name, such as "torch.roll", with arguments as torch takes them, tensors as Ref. Types of
    floating point among them are float64 where the program runs in float64."""

    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self, values: Sequence[Tensor], wide: bool) -> tuple[Tensor, ...]:
        """The tensors that it gives."""
        args, kwargs = tree_map(lambda leaf: _argument(leaf, values, wide), (self.args, self.kwargs))
        found = self._callable(*args, **kwargs)
        return (found,) if isinstance(found, Tensor) else tuple(found)

    @property
    def _callable(self) -> Callable[..., Any]:
        home, _, name = self.function.partition(".")
        return FUNCTIONS[name] if home == "own" else getattr(_HOMES[home], name)


def _argument(leaf: Any, values: Sequence[Tensor], wide: bool) -> Any:
    if isinstance(leaf, Ref):
        return values[leaf.number]
    return torch.float64 if wide and isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf


@dataclass(frozen=True)
class Drawn:
    """What was drawn: a program's inputs, weights and steps, and the numbers of the values that it gives."""

    inputs: tuple[Given, ...]
    weights: tuple[Given, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


class Program(nn.Module):
    """The program that was drawn, a function of its inputs."""

    def __init__(self, of: Drawn, seed: int):
        super().__init__()
        self.of = of
        for number, given in enumerate(of.weights):
            self.register_buffer(f"weight{number}", given.make(seed))

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        values = [*args, *self.buffers()]
        wide = any(value.dtype == torch.float64 for value in values)
        for step in self.of.steps:
            values.extend(step.run(values, wide))
        return tuple(values[number] for number in self.of.outputs)


def _is_sound(exact: Tensor, off: Tensor) -> bool:
    """Whether numbers are finite and of a moderate size, and about the same where all before was a little off."""
    if not exact.is_floating_point():
        return torch.equal(exact, off)
    if not (exact.isfinite().all() and off.isfinite().all() and exact.abs().max() < _MOST):
        return False
    return bool((exact - off).norm() <= _MOST_OFF * exact.norm())


def make(seed: int, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module of a seed, and its arguments."""
    of = draw(seed, small)
    return Program(of, seed), arguments(of, seed)


def arguments(of: Drawn, seed: int) -> tuple[Tensor, ...]:
    """Arguments for what was drawn: with its own seed, those that it was drawn with."""
    return tuple(given.make(seed) for given in of.inputs)


def draw(seed: int, small: bool = False) -> Drawn:
    """The program of a seed; a `small` one for the simulator."""
    from .program_steps import FAMILIES  # which takes Drawing from here

    drawing = Drawing(seed, small)
    families, weights = zip(*FAMILIES.items(), strict=True)
    while len(drawing.steps) < drawing.length:
        (family,) = drawing.rng.choices(families, weights)
        drawing.attempt(drawing.rng.choice(family))
    return drawing.done()


class Unfit(Exception):
    """What was proposed does not fit what is there."""


@dataclass(frozen=True)
class Value:
    """A value while a program is drawn: its type, what it is in float64, and what it is where all is a little off."""

    ref: Ref
    dtype: torch.dtype
    exact: Tensor
    off: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.exact.shape)

    @property
    def rank(self) -> int:
        return self.exact.dim()

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def is_certain(self) -> bool:
        """Whether it is the same however numbers are rounded."""
        return torch.equal(self.exact, self.off)

    def is_index(self, below: int) -> bool:
        """Whether it has numbers of `below` rows."""
        numbers = self.exact
        return self.dtype == torch.int64 and bool(numbers.numel() and numbers.min() >= 0 and numbers.max() < below)


class Drawing:
    """A program as it is drawn. Rules (program_steps.py) pick values and call functions on them."""

    def __init__(self, seed: int, small: bool):
        self.rng = rng = random.Random(seed)
        sizes = _SMALL if small else _SIZES
        (self.limit,) = rng.choices(list(sizes), list(sizes.values()))
        self.length = rng.randint(3, 12) if small or self.limit > 100_000 else rng.randint(5, 40)
        self.dtype = rng.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
        self.sizes = rng.sample((2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65, 100, 128, 200, 256, 1000), 6)
        self.steps: list[Step] = []
        self.inputs: list[Given] = []
        self.weights: list[Given] = []
        self.values: list[Value] = []
        self.read: set[int] = set()
        self._seed = seed
        self._noise = torch.Generator().manual_seed(seed)
        for _ in range(rng.randint(1, 3)):
            self.given(self.shape(rng.randint(1, 4)), weight=False)

    def shape(self, rank: int) -> tuple[int, ...]:
        """A shape of a rank, of the sizes that this program has."""
        found = [self.rng.choice(self.sizes) if self.rng.random() < 0.95 else 1 for _ in range(rank)]
        while math.prod(found) > self.limit:
            found[self.rng.randrange(rank)] = self.rng.choice((1, 2, 3, 4, 5, min(self.sizes)))
        return tuple(found)

    def given(self, shape: Sequence[int], below: int = 0, weight: bool | None = None) -> Value:
        """A new input or weight: of numbers `below` one, or of the program's floating type."""
        if math.prod(shape) > self.limit:
            raise Unfit
        given = Given(tuple(shape), torch.int64 if below else self.dtype, below, len(self.values))
        weight = self.rng.random() < 0.6 if weight is None else weight
        exact = given.make(self._seed)
        exact = exact.double() if given.dtype.is_floating_point else exact
        (self.weights if weight else self.inputs).append(given)
        value = Value(Ref(len(self.values)), given.dtype, exact, exact)
        self.values = [*self.values, value]
        return value

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """One that fits, rather one of the last, or that nobody has read."""
        found = [value for value in self.values if fits(value)]
        if not found:
            raise Unfit
        unread = [value for value in found if value.ref.number not in self.read]
        if unread and self.rng.random() < 0.4:
            return self.rng.choice(unread)
        return found[-1 - min(int(self.rng.expovariate(0.4)), len(found) - 1)]

    def floating(self, rank: int = 0, most: int = 6, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """A value of floating point of a rank from `rank` to `most`."""
        return self.pick(lambda value: value.is_float and rank <= value.rank <= most and fits(value))

    def call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """The result of a function, or its results; numbers of results are kept tame."""
        step = Step(function, *tree_map(lambda leaf: leaf.ref if isinstance(leaf, Value) else leaf, (args, kwargs)))
        found = [self._keep(value) for value in self._run(step, function not in MOVES)]
        return found[0] if len(found) == 1 else found

    def _run(self, step: Step, rounds: bool) -> list[Value]:
        """Does a step, whose results are rounded or not; Unfit where torch does not take it, or float64 is no reference
        for its numbers."""
        before = self.values
        try:
            made = step.run([torch.empty_like(v.exact, dtype=v.dtype, device="meta") for v in before], False)
            rounds = rounds and any(one.is_floating_point() for one in made)
            exact = step.run([value.exact for value in before], True)
            operands = {leaf.number for leaf in tree_leaves((step.args, step.kwargs)) if isinstance(leaf, Ref)}
            near = [self._off(v.off) if rounds and n in operands else v.off for n, v in enumerate(before)]
            off = step.run(near, True)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            raise Unfit from error
        found = []
        for one, value, near in zip(made, exact, off, strict=True):
            if one.numel() > self.limit or not one.numel() or one.is_complex() or one.shape != value.shape:
                raise Unfit
            if not _is_sound(value, near := self._off(near) if rounds else near):
                raise Unfit
            found.append(Value(Ref(len(before) + len(found)), one.dtype, value, near))
        self.read |= operands
        self.steps.append(step)
        self.values = [*before, *found]
        return found

    def _off(self, value: Tensor) -> Tensor:
        """A value a little off."""
        if not value.is_floating_point():
            return value
        return value * (1 + _OFF * torch.randn(value.shape, generator=self._noise, dtype=torch.float64))

    def _keep(self, value: Value) -> Value:
        """The value, multiplied by a power of two where it has grown or shrunk."""
        if not value.is_float:
            return value
        size = value.exact.square().mean().sqrt().item()
        if _LEAST < size < _TAME or not size:
            return value
        return self._run(Step("torch.mul", (value.ref, 2.0 ** -round(math.log2(size))), {}), rounds=False)[0]

    def attempt(self, rule: Callable[[Drawing], Any]) -> None:
        """Takes the steps of a rule, or none of them."""
        before = len(self.steps), self.values, set(self.read), len(self.inputs), len(self.weights)
        try:
            rule(self)
        except Unfit:
            steps, self.values, self.read, inputs, weights = before
            del self.steps[steps:], self.inputs[inputs:], self.weights[weights:]

    def done(self) -> Drawn:
        """What was drawn: values renumbered so that inputs and weights come first."""
        givens = [given.value for given in (*self.inputs, *self.weights)]
        numbers = range(len(self.values))
        results = [number for number in numbers if number not in givens]
        new = {old: number for number, old in enumerate((*givens, *results))}

        def renumber(leaf: Any) -> Any:
            return Ref(new[leaf.number]) if isinstance(leaf, Ref) else leaf

        steps = tuple(Step(s.function, *tree_map(renumber, (s.args, s.kwargs))) for s in self.steps)
        outputs = tuple(new[number] for number in results if number not in self.read)
        return Drawn(tuple(self.inputs), tuple(self.weights), steps, outputs)
