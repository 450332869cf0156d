"""A plan as a picture: SVG for people, Graphviz dot for tools. Works on the plan alone (no MLIR).

Stages stand top to bottom in the order of the data, those of one role (which share their CTAs) in one
frame; arrows are queues, coloured by transport; the squares beside a frame are its CTAs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kitsune_mlir.plan_report import duration, size

KIND_FILL = {"tensor": "#dbe9fb", "simt": "#fdeacc"}
KIND_EDGE = {"tensor": "#2f6fbf", "simt": "#c77c11"}
TRANSPORT_COLOUR = {"reg": "#6b7280", "smem": "#15803d", "dsmem": "#0e7490", "l2": "#7e22ce", "hbm": "#b91c1c"}
TRANSPORT_TEXT = {
    "reg": "registers",
    "smem": "shared memory",
    "dsmem": "distributed shared memory",
    "l2": "ring in L2",
    "hbm": "DRAM",
}
_CTA = "#4b5563"
_OPEN = "#374151"  # a queue that is not placed

_BOX_WIDTH, _BOX_HEIGHT, _GAP, _PAD = 270, 46, 34, 14
_LEFT, _TOP = 24, 96
_SQUARE, _PER_ROW = 11, 12  # a CTA, and how many stand side by side where there is height enough
_LANE = 26  # between arcs that pass by stages


@dataclass(eq=False)  # told apart by identity
class _Edge:
    source: int
    target: int
    queue: dict[str, Any]


def svg(plan: dict[str, Any]) -> str:
    """The picture of all pipelines of a plan, one below the other."""
    panels, top, width = [], 0, 0
    for pipeline in plan["pipelines"]:
        panel, panel_width, panel_height = _panel(plan, pipeline)
        panels.append(f'<g transform="translate(0 {top})">{panel}</g>')
        top, width = top + panel_height, max(width, panel_width)
    if not panels:
        panels, top, width = [_text(20, 40, "no pipelines: every operator runs alone", 16)], 64, 380
    body = "\n".join(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}" '
        f'font-family="Helvetica, Arial, sans-serif">\n<rect width="{width}" height="{top}" fill="white"/>\n'
        f"{_markers()}\n{body}\n</svg>\n"
    )


def dot(plan: dict[str, Any]) -> str:
    """The same as a Graphviz graph."""
    lines = ["digraph plan {", "  rankdir=TB; node [shape=box, style=filled];"]
    for p, pipeline in enumerate(plan["pipelines"]):
        lines.append(f'  subgraph cluster_{p} {{ label="{pipeline["name"]}";')
        for stage in pipeline["stages"]:
            label = f"{stage['name']}\\n{stage['computes']}\\n{stage['kind']}, {_ctas(stage)}"
            lines.append(f'    "{p}.{stage["name"]}" [label="{label}", fillcolor="{KIND_FILL[stage["kind"]]}"];')
        lines.append("  }")
        for queue in pipeline["queues"]:
            label = f"{queue['name']}: {_queue_text(queue)}"
            for consumer in queue["consumers"]:
                lines.append(f'  "{p}.{queue["producer"]}" -> "{p}.{consumer}" [label="{label}"];')
    return "\n".join([*lines, "}", ""])


def _panel(plan: dict[str, Any], pipeline: dict[str, Any]) -> tuple[str, int, int]:
    """One pipeline: its SVG, width and height."""
    stages = pipeline["stages"]
    position = {stage["name"]: i for i, stage in enumerate(stages)}
    edges = [
        _Edge(position[queue["producer"]], position[consumer], queue)
        for queue in pipeline["queues"]
        for consumer in queue["consumers"]
    ]
    lanes = _lanes([edge for edge in edges if edge.target - edge.source > 1])
    arcs_width = 48 + _LANE * max([lane + 1 for lane in lanes.values()], default=0)
    frame_width = _BOX_WIDTH + 2 * _PAD
    squares_left = _LEFT + frame_width + arcs_width
    frames = _frames(stages)
    width = squares_left + _SQUARE * max(_columns(stages[first], first, last) for _, first, last in frames) + 90
    bottom = _y(len(stages) - 1) + _BOX_HEIGHT + _PAD
    parts = [_heading(plan, pipeline)]
    for role, first, last in frames:
        parts.append(_frame(role, stages[first], first, last, frame_width, squares_left))
    parts += [_arrow(edge, lanes.get(edge)) for edge in edges]
    parts += [_box(i, stage) for i, stage in enumerate(stages)]
    legend, height = _legend(pipeline, bottom + _GAP)
    return "\n".join([*parts, legend]), width, height


def _lanes(edges: Sequence[_Edge]) -> dict[_Edge, int]:
    """A lane for each arc such that arcs in one lane do not overlap; short ones lie nearest."""
    lanes: dict[_Edge, int] = {}
    for edge in sorted(edges, key=lambda e: e.target - e.source):
        taken = {lane for other, lane in lanes.items() if edge.source < other.target and other.source < edge.target}
        lanes[edge] = next(lane for lane in range(len(edges)) if lane not in taken)
    return lanes


def _frames(stages: Sequence[dict[str, Any]]) -> list[tuple[int | None, int, int]]:
    """Runs of neighbouring stages of one role: (role, first, last)."""
    frames: list[tuple[int | None, int, int]] = []
    for i, stage in enumerate(stages):
        if frames and frames[-1][0] == stage["role"] and stage["role"] is not None:
            frames[-1] = (stage["role"], frames[-1][1], i)
        else:
            frames.append((stage["role"], i, i))
    return frames


def _y(position: int) -> int:
    return _TOP + position * (_BOX_HEIGHT + _GAP)


def _heading(plan: dict[str, Any], pipeline: dict[str, Any]) -> str:
    rows = f", tiles of {pipeline['tile_rows']} rows" if pipeline["tile_rows"] else ""
    operators = sum(stage["operators"] for stage in pipeline["stages"])
    title = f"{pipeline['name']} on {plan['target']}{rows}"
    stages, queues = _count(len(pipeline["stages"]), "stage"), _count(len(pipeline["queues"]), "queue")
    detail = f"{_count(operators, 'operator')} in {stages}, {queues}"
    if pipeline["predicted_us"] is not None:
        detail += f", predicted {duration(pipeline['predicted_us'])}"
    return _text(_LEFT, 34, title, 19, weight="bold") + _text(_LEFT, 58, detail, 13, "#4b5563")


def _frame(role: int | None, stage: dict[str, Any], first: int, last: int, width: int, squares_left: int) -> str:
    top, bottom = _y(first) - _PAD, _y(last) + _BOX_HEIGHT + _PAD
    parts = [
        f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{bottom - top}" rx="9" fill="#f9fafb" stroke="#d1d5db"/>'
    ]
    if stage["ctas"] is not None:
        parts.append(_text(squares_left, top + 18, f"role {role}: {_ctas(stage)}", 12, "#374151"))
        columns = _columns(stage, first, last)
        for i in range(stage["ctas"]):
            x, y = squares_left + i % columns * _SQUARE, top + 26 + i // columns * _SQUARE
            parts.append(f'<rect x="{x}" y="{y}" width="8" height="8" rx="1.5" fill="{_CTA}"/>')
    return "".join(parts)


def _columns(stage: dict[str, Any], first: int, last: int) -> int:
    """How many CTAs stand side by side so that those of a frame fit beside it."""
    rows = (_y(last) + _BOX_HEIGHT + _PAD - _y(first) + _PAD - 26) // _SQUARE
    return max(_PER_ROW, -(-(stage["ctas"] or 0) // rows))


def _box(position: int, stage: dict[str, Any]) -> str:
    x, y = _LEFT + _PAD, _y(position)
    name, place = escape(stage["name"]), escape(stage["location"].rpartition("/")[2])
    fill, edge = KIND_FILL[stage["kind"]], KIND_EDGE[stage["kind"]]
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" fill="{fill}" stroke="{edge}"/>'
        + _text(x + 10, y + 19, name, 14, weight="bold")
        + _text(x + _BOX_WIDTH - 10, y + 19, place, 11, "#6b7280", anchor="end")
        + _text(x + 10, y + 37, escape(stage["computes"]), 12, "#374151")
    )


def _arrow(edge: _Edge, lane: int | None) -> str:
    colour = TRANSPORT_COLOUR.get(edge.queue["transport"], _OPEN)
    marker = f'marker-end="url(#arrow-{edge.queue["transport"] or "open"})"'
    label = escape(f"{edge.queue['name']}  {_queue_text(edge.queue)}")
    start, end = _y(edge.source) + _BOX_HEIGHT, _y(edge.target)
    if lane is None:
        x = _LEFT + _PAD + 40
        line = f'<line x1="{x}" y1="{start}" x2="{x}" y2="{end - 2}" stroke="{colour}" stroke-width="1.8" {marker}/>'
        return line + _text(x + 12, (start + end) / 2 + 4, label, 11, colour)
    right = _LEFT + _PAD + _BOX_WIDTH
    out = right + _PAD + 18 + lane * _LANE
    y1, y2 = start - 10 - 5 * (lane % 3), end + 10 + 5 * (lane % 3)
    path = f"M{right} {y1} H{out - 10} Q{out} {y1} {out} {y1 + 10} V{y2 - 10} Q{out} {y2} {out - 10} {y2} H{right + 3}"
    line = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8" {marker}/>'
    middle = (y1 + y2) / 2
    return line + (
        f'<text x="{out + 6}" y="{middle}" font-size="11" fill="{colour}" text-anchor="middle" '
        f'transform="rotate(90 {out + 6} {middle})">{label}</text>'
    )


def _legend(pipeline: dict[str, Any], top: int) -> tuple[str, int]:
    """What fills and colours mean, below the frames and their CTAs, and where the next pipeline may begin."""
    used = list(dict.fromkeys(queue["transport"] for queue in pipeline["queues"] if queue["transport"]))
    kinds = list(dict.fromkeys(stage["kind"] for stage in pipeline["stages"]))
    parts, left, y = [], _LEFT, top
    for kind in kinds:
        text = "matrix products (tensor cores)" if kind == "tensor" else "elementwise work (SIMT)"
        style = f'fill="{KIND_FILL[kind]}" stroke="{KIND_EDGE[kind]}"'
        parts.append(f'<rect x="{left}" y="{y - 10}" width="22" height="13" rx="3" {style}/>')
        parts.append(_text(left + 30, y, text, 12, "#374151"))
        y += 20
    for transport in used:
        colour = TRANSPORT_COLOUR[transport]
        parts.append(
            f'<line x1="{left}" y1="{y - 4}" x2="{left + 22}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_text(left + 30, y, f"queue: {TRANSPORT_TEXT[transport]}", 12, "#374151"))
        y += 20
    return "".join(parts), y + 10


def _markers() -> str:
    colours = {**TRANSPORT_COLOUR, "open": _OPEN}
    return (
        "<defs>"
        + "".join(
            f'<marker id="arrow-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
            for name, colour in colours.items()
        )
        + "</defs>"
    )


def _queue_text(queue: dict[str, Any]) -> str:
    return f"{queue['transport'] or 'open'}, {queue['depth']} × {size(queue['tile_bytes'])}"


def _ctas(stage: dict[str, Any]) -> str:
    count = stage["ctas"]
    return "not placed" if count is None else _count(count, "CTA")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _text(x: float, y: float, text: str, points: int, fill: str = "#111827", weight: str = "", anchor: str = "") -> str:
    extra = (f' font-weight="{weight}"' if weight else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x}" y="{math.floor(y)}" font-size="{points}" fill="{fill}"{extra}>{text}</text>'
