"""The launches of a plan beside what a profiler saw of them. Standard library only."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# How a profiler's names of what is no kernel begin, and what it is called in a plan.
MEMORY = {"Memcpy DtoD": "copy", "Memset": "fill"}


@dataclass(frozen=True)
class Event:
    """What ran on a GPU: a kernel, a copy or a fill of memory; in microseconds."""

    name: str
    start: float
    us: float


def beside(
    launches: Sequence[Mapping[str, Any]], events: Sequence[Event], whole_us: float | None = None
) -> list[dict[str, Any]]:
    """The plan's `launches`, each with `duration_us` and `measured_us`; None where the profile of a few runs does not
    show as many of a name as the plan has. A duration is the median over the runs. What is measured is that and an
    equal share of the time between the kernels of a run, which takes `whole_us` without a profiler."""
    seen: dict[str, list[float]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.start):
        name = next((known for start, known in MEMORY.items() if event.name.startswith(start)), event.name)
        seen[name].append(event.us)
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, launch in enumerate(launches):
        numbers[launch["kernel"]].append(number)
    durations: dict[int, float] = {}
    for name, members in numbers.items():
        times = seen[name]
        if times and len(times) % len(members) == 0:
            durations |= {n: statistics.median(times[i :: len(members)]) for i, n in enumerate(members)}
    between = 0.0
    if whole_us is not None and len(durations) == len(launches) > 0:
        between = max(0.0, whole_us - sum(durations.values())) / len(launches)
    return [
        {
            **launch,
            "duration_us": round(durations[n], 3) if n in durations else None,
            "measured_us": round(durations[n] + between, 3) if n in durations else None,
        }
        for n, launch in enumerate(launches)
    ]


def kind(launch: Mapping[str, Any]) -> str:
    """What launches of one price model are called: the form, and an operator's kind."""
    return f"operator {launch['computes']}" if launch["form"] == "operator" else str(launch["form"])


def over_measured(launch: Mapping[str, Any]) -> float | None:
    """Predicted over measured; None for what was not measured."""
    measured = launch.get("measured_us")
    return launch["predicted_us"] / measured if measured else None
