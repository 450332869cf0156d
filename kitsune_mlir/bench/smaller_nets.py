"""What is left out of a random network (random_nets.py) to find the cause of a failure: one move at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .random_nets import Net


def smaller(net: Net) -> Iterator[Net]:
    """Nets that are one move smaller than this one, the most promising first."""
    first = len(net.inputs)
    if len(net.outputs) > 1:
        for output in net.outputs:
            yield pruned(replace(net, outputs=(output,), joined=False))
    for rows in (1, 129, net.rows // 2):
        if 0 <= rows < net.rows:
            yield replace(net, rows=rows, tokens=0)
    if net.tokens:
        yield replace(net, tokens=0)
    for number in reversed(range(len(net.steps))):
        value = first + number
        for stand_in in dict.fromkeys(net.steps[number].sources):
            yield _without(net, value, stand_in)
    for number, step in enumerate(net.steps):
        if step.kind == "linear":
            for size in (1, 8, 16, 64, step.size // 2):
                if 0 < size < step.size:
                    yield _changed(net, number, size=size)
            if step.extra:
                yield _changed(net, number, extra=0)
        elif len(step.sources) > 2:
            for left in range(len(step.sources)):
                yield _changed(net, number, sources=step.sources[:left] + step.sources[left + 1 :])
    for number, width in enumerate(net.inputs):
        for size in (1, 8, 16, 64, width // 2):
            if 0 < size < width:
                yield replace(net, inputs=(*net.inputs[:number], size, *net.inputs[number + 1 :]))


def _changed(net: Net, number: int, **fields: Any) -> Net:
    steps = list(net.steps)
    steps[number] = replace(steps[number], **fields)
    return replace(net, steps=tuple(steps))


def _without(net: Net, value: int, stand_in: int) -> Net:
    """Leaves a step out; another value stands where its own was read, and what nothing reads goes too."""

    def moved(read: int) -> int:
        read = stand_in if read == value else read
        return read - (read > value)

    number = value - len(net.inputs)
    steps = tuple(
        replace(step, sources=tuple(map(moved, step.sources)))
        for step in (*net.steps[:number], *net.steps[number + 1 :])
    )
    outputs = tuple(dict.fromkeys(map(moved, net.outputs)))
    return pruned(replace(net, steps=steps, outputs=outputs))


def pruned(net: Net) -> Net:
    """Without steps and inputs that no output needs."""
    first, needed = len(net.inputs), set(net.outputs)
    for number in reversed(range(len(net.steps))):
        if first + number in needed:
            needed |= set(net.steps[number].sources)
    kept = [value for value in range(first + len(net.steps)) if value in needed]
    inputs = tuple(net.inputs[value] for value in kept if value < first)
    place = {value: at for at, value in enumerate(kept)}
    steps = tuple(
        replace(net.steps[value - first], sources=tuple(place[s] for s in net.steps[value - first].sources))
        for value in kept
        if value >= first
    )
    return replace(net, inputs=inputs, steps=steps, outputs=tuple(place[o] for o in net.outputs))
