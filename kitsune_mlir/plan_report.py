"""A plan as text for people: plain columns that read the same on a terminal, in a log and in a README."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any


def report(plan: dict[str, Any]) -> str:
    """The plan (kitsune_mlir.plan) of one target as text of several lines."""
    operators, traffic = plan["operators"], plan["dram_bytes"]
    removed = 1 - traffic["planned"] / traffic["bulk_sync"] if traffic["bulk_sync"] else 0.0
    share = f"{operators['pipelined']} of {operators['total']} operators pipelined"
    inputs = ", ".join("x".join(map(str, sizes)) or "a number" for sizes in plan.get("input_sizes", ()))
    lines = [
        f"target {plan['target']}: {share}, predicted {duration(plan['predicted_us'])}"
        + (f" for inputs of {inputs}" if inputs else ""),
        *([f"f32 products in {plan['matmul_precision']} precision (tf32)"] if "matmul_precision" in plan else []),
        *(
            [f"deterministic: {duration(plan['deterministic_us'])} of it for rows by index in their order"]
            if "deterministic_us" in plan
            else []
        ),
        f"DRAM traffic {size(traffic['planned'])} of {size(traffic['bulk_sync'])} bulk-synchronous"
        f" ({removed:.1%} removed)",
    ]
    equal: dict[str, list[str]] = defaultdict(list)
    for pipeline in plan["pipelines"]:
        equal["\n".join(_pipeline(pipeline))].append(pipeline["name"])
    for text, names in equal.items():
        others = f" and {len(names) - 1} more like it" if len(names) > 1 else ""
        lines += ["", f"pipeline {names[0]}{others}{text}"]
    if cuts := plan.get("cuts"):
        lines += ["", "not in one kernel", *table(cuts)]
    if launches := plan.get("launches"):
        lines += ["", f"launches: {len(launches)} a call", *table(_launches(launches))]
    if plan["declined"]:
        lines += ["", "not pipelined", *table(_grouped(plan["declined"]))]
    return "\n".join(lines)


def duration(us: float) -> str:
    """Microseconds for people: 12345.6 -> "12.3 ms"."""
    return f"{us:.3g} us" if us < 1e3 else f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def size(count: float) -> str:
    """Bytes for people: 1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _pipeline(pipeline: dict[str, Any]) -> list[str]:
    """The lines about a pipeline, the first of them what follows its name."""
    rows = pipeline["tile_rows"]
    head = f", tiles of {rows} rows" if rows else ""
    if (pipeline.get("cluster") or 1) > 1:
        head += f", clusters of {pipeline['cluster']} CTAs share tiles or sums"
    queues = [
        {
            "queue": queue["name"],
            "from": queue["producer"],
            "to": ", ".join(queue["consumers"]),
            "transport": queue["transport"] or "open",
            "depth": queue["depth"],
            "tile": size(queue["tile_bytes"]),
        }
        for queue in pipeline["queues"]
    ]
    stages = [
        {
            "stage": stage["name"],
            "kind": stage["kind"],
            "role": "-" if stage["role"] is None else stage["role"],
            "ctas": "-" if stage["ctas"] is None else stage["ctas"],
            "computes": stage["computes"],
            "location": _short(stage["location"]),
        }
        for stage in pipeline["stages"]
    ]
    return [head, *table(stages), *(["", *table(queues)] if queues else [])]


def _launches(launches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a launch; equal ones once, where the first of them stands, with their number."""
    return folded(
        {
            "launch": launch["computes"] if launch["form"] == "operator" else launch["kernel"],
            "form": launch["form"],
            "tile": "x".join(map(str, launch["tile"])) if launch["tile"] else "-",
            "ctas": "-" if launch["ctas"] is None else launch["ctas"],
            "us": f"{launch['predicted_us']:.1f}",
            "limit": launch["limit"],
            "location": _short(launch["location"]),
        }
        for launch in launches
    )


def folded(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal rows of a table once, their number before them."""
    counts = Counter(tuple(row.items()) for row in rows)
    return [{"": f"{count} x" if count > 1 else "", **dict(row)} for row, count in counts.items()]


def _grouped(declined: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return folded(
        {
            "operator": entry["operator"],
            "location": _short(entry["location"]),
            "reason": entry["reason"].removeprefix("stays outside pipelines: "),
        }
        for entry in declined
    )


def _short(place: str) -> str:
    """A location below the current folder without that folder."""
    return place.removeprefix(os.getcwd() + os.sep)


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of the same keys as lines of columns, the keys above."""
    columns = list(rows[0])
    cells = [[column for column in columns]] + [[str(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    ]
