"""Splits a host program: what depends on weights and constants alone runs once, when the program is loaded.

    launch pad(w, b)          once:  launch pad(w, b); return b
    launch product(x, b, y)   rest:  b is an argument; launch product(x, b, y)

A buffer stands for all its views: it is the same in every run if all calls that write it are so and none
of them comes after a call that is not and uses it. A call is the same if all buffers and numbers that it is
given are. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .host_program import BYTES, Step

CALLS = ("launch", "copy", "pipeline")
# What is kept takes memory for good: so much in any case, and so many times the weights it is made from. A
# packed weight is below that; a bias repeated for all rows is not, and is cheap to make again.
SMALL, GROWTH = 1 << 20, 4


@dataclass(frozen=True)
class Split:
    """Program `once` returns what `rest` takes as further arguments, described by `kept`; `released` are the
    numbers of the weights that `rest` does not read."""

    once: list[Step]
    rest: list[Step]
    kept: list[dict[str, Any]]
    released: list[int]


def split(manifest: dict[str, Any], bound: Sequence[bool]) -> Split:
    """Splits the program of a manifest. `bound` says of each argument of @main whether it is a weight, which
    never changes, or given anew with each call."""
    program, buffers = manifest["program"], _Buffers(manifest, bound)
    calls = _calls(program, buffers)
    constant = _constant(calls, buffers)
    made = {root for n in constant for root in calls[n].written}
    read = {root for n in constant for root in calls[n].touched}
    later = {root for n in calls.keys() - constant for root in calls[n].touched}
    kept = [root for root in buffers.shapes if root in made & later]
    if not kept:
        return Split([], program, [], [])
    once = [step for n, step in enumerate(program) if n in constant or buffers.defines(step) in read]
    once.append({"op": "return", "values": kept})
    rest = list(_rest(program, constant, buffers, {root: len(bound) + i for i, root in enumerate(kept)}))
    released = [i for i, weight in enumerate(bound) if weight and f"a{i}" in read - later]
    return Split(once, rest, [buffers.described(root) for root in kept], released)


def touched_buffers(manifest: dict[str, Any]) -> dict[int, tuple[set[str], set[str]]]:
    """By the number of a step that is a call the buffers that it reads or writes, and those that it writes, a view as
    the buffer that it is of."""
    calls = _calls(manifest["program"], _Buffers(manifest, [False] * len(manifest["arguments"])))
    return {number: (call.touched, call.written) for number, call in calls.items()}


def _calls(program: Sequence[Step], buffers: _Buffers) -> dict[int, _Call]:
    return {number: _Call(step, buffers) for number, step in enumerate(program) if step["op"] in CALLS}


def _rest(program: list[Step], constant: set[int], buffers: _Buffers, numbers: dict[str, int]) -> Iterator[Step]:
    """The steps of each run: without the constant calls, whose buffers views and sizes still may name. `numbers`
    are those of the arguments that kept buffers become."""
    for n, step in enumerate(program):
        if step["op"] == "alloc" and step["to"] in numbers:
            yield {"op": "kept", "to": step["to"], "argument": numbers[step["to"]]}
        elif step["op"] == "pipeline" and n in constant:
            for result in own_results(step):
                if result["to"] in numbers:
                    yield {"op": "kept", "to": result["to"], "argument": numbers[result["to"]]}
                else:
                    yield {"op": "alloc", "to": result["to"], **buffers.described(result["to"])}
        elif n not in constant:
            yield step


def own_results(step: Step) -> list[dict[str, Any]]:
    """The results of a pipeline that are buffers of their own."""
    return [result for result in step["results"] if "into" not in result]


class _Buffers:
    """The buffers of a program: roots, and the views of them, by name. Those that are `fixed` are so at sizes and
    offsets that no call decides."""

    def __init__(self, manifest: dict[str, Any], bound: Sequence[bool]):
        self.roots: dict[str, str] = {}
        self.fixed: set[str] = set()
        self.shapes: dict[str, tuple[str, tuple[int, ...]]] = {}  # of fixed roots: dtype, shape
        self.sources: set[str] = set()  # weights and constants
        self.results: set[str] = set()
        for i, (weight, argument) in enumerate(zip(bound, manifest["arguments"], strict=True)):
            self._root(f"a{i}", argument, weight)
        for step in manifest["program"]:
            match step["op"]:
                case "alloc":
                    self._root(step["to"], step)
                case "global":
                    self._root(step["to"], manifest["globals"][step["name"]], source=True)
                case "pipeline":
                    for result in own_results(step):
                        self._root(result["to"], result)
                case "metadata":
                    self._view(step["base"], step["of"])
                case "view":
                    self._view(step["to"], step["of"], step["offset"], *step["shape"], *step["strides"])
                case "return":
                    self.results |= {self.roots[name] for name in step["values"]}
        inputs = {f"a{i}" for i, weight in enumerate(bound) if not weight}
        self.changing = inputs | self.results | {root for root in self.roots.values() if root not in self.fixed}

    def _root(self, name: str, described: dict[str, Any], source: bool = False) -> None:
        self.roots[name] = name
        if all(isinstance(size, int) for size in described["shape"]):
            self.fixed.add(name)
            self.shapes[name] = described["dtype"], tuple(described["shape"])
        if source:
            self.sources.add(name)

    def _view(self, name: str, of: str, *numbers: Any) -> None:
        self.roots[name] = self.roots[of]
        if of in self.fixed and all(isinstance(number, int) for number in numbers):
            self.fixed.add(name)

    def described(self, root: str) -> dict[str, Any]:
        """A fixed root, as a manifest describes arguments."""
        dtype, shape = self.shapes[root]
        return {"dtype": dtype, "shape": list(shape)}

    def nbytes(self, root: str) -> int:
        """The bytes of a fixed root."""
        dtype, shape = self.shapes[root]
        return prod(shape) * BYTES[dtype]

    def defines(self, step: Step) -> str | None:
        """The root of the fixed buffer that the step names; None if it names none."""
        name = step.get("base") if step["op"] == "metadata" else step.get("to")
        return self.roots[name] if name in self.fixed else None


class _Call:
    """The roots that a call touches, and those of them that it writes; whether all it is given is fixed."""

    def __init__(self, step: Step, buffers: _Buffers):
        numbers: list[Any] = []
        if step["op"] == "launch":
            numbers = [*step["grid"], *step["block"], *(a[1] for a in step["args"] if isinstance(a, list))]
            named = [argument for argument in step["args"] if isinstance(argument, str)]
            written = [step["args"][i] for i in step["writes"]]
        elif step["op"] == "copy":
            named, written = [step["from"], step["into"]], [step["into"]]
        else:
            written = [result.get("into") or result["to"] for result in step["results"]]
            named = [*step["args"], *written]
        self.touched = {buffers.roots[name] for name in named}
        self.written = {buffers.roots[name] for name in written}
        self.fixed = buffers.fixed.issuperset(named) and not any(isinstance(number, str) for number in numbers)


def _constant(calls: dict[int, _Call], buffers: _Buffers) -> set[int]:
    """The calls that do the same in every run and make nothing too large to keep, as what other calls read is."""
    changing = set(buffers.changing)
    changing |= {root for call in calls.values() for root in call.written & buffers.sources}
    constant = set(calls)
    while True:
        found = {n for n in constant if not calls[n].fixed or calls[n].touched & changing}
        constant -= found
        new = {root for n in found for root in calls[n].written}
        if not found:
            later = {root for n in calls.keys() - constant for root in calls[n].touched}
            new = _overwritten(calls, constant) | (_large([calls[n] for n in sorted(constant)], buffers) & later)
        if not found and not new:
            return constant
        changing |= new


def _overwritten(calls: dict[int, _Call], constant: set[int]) -> set[str]:
    """The buffers that a constant call writes after another call used what was there."""
    used: set[str] = set()
    found: set[str] = set()
    for n in sorted(calls):
        if n in constant:
            found |= calls[n].written & used
        else:
            used |= calls[n].touched
    return found


def _large(calls: Sequence[_Call], buffers: _Buffers) -> set[str]:
    """The buffers that these calls, in order, make much larger than the weights they make them from."""
    origins = {root: {root} for root in buffers.sources}
    for call in calls:
        found = set().union(*(origins.get(root, set()) for root in call.touched))
        origins.update({root: origins.get(root, set()) | found for root in call.written})
    return {
        root
        for call in calls
        for root in call.written
        if buffers.nbytes(root) > max(SMALL, GROWTH * sum(buffers.nbytes(source) for source in origins[root]))
    }
