"""Drawings of plans: well-formed, complete, and nothing drawn over the frame of another role."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from kitsune_mlir import drawing

SVG = "{http://www.w3.org/2000/svg}"


def plan(stages, queues):
    return {
        "target": "sm_90a",
        "pipelines": [
            {
                "name": "p",
                "tile_rows": 64,
                "predicted_us": 12.0,
                "stages": [
                    {"name": f"s{i}", "kind": kind, "role": role, "ctas": ctas, "operators": 1, "computes": "a < b",
                     "location": "model.py:1"}
                    for i, (kind, role, ctas) in enumerate(stages)
                ],
                "queues": [
                    {"name": f"q{i}", "producer": a, "consumers": b, "transport": transport, "depth": 2,
                     "tile_bytes": 1024}
                    for i, (a, b, transport) in enumerate(queues)
                ],
            }
        ],
    }  # fmt: skip


SPATIAL = plan(
    [("simt", 0, 66), ("tensor", 1, 60), ("tensor", 1, 60), ("simt", 2, 6)],
    [("s0", ["s1", "s3"], "l2"), ("s0", ["s2"], "l2"), ("s1", ["s2"], "smem"), ("s2", ["s3"], "dsmem")],
)


def test_every_stage_queue_and_cta_is_drawn():
    root = ElementTree.fromstring(drawing.svg(SPATIAL))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"s0", "s1", "s2", "s3", "a < b", "role 0: 66 CTAs", "role 2: 6 CTAs"} <= set(texts)
    assert sum(text.startswith("q") and "2 × 1.0 KiB" in text for text in texts) == 5  # one for each consumer
    ctas = [square for square in root.iter(f"{SVG}rect") if square.get("width") == "8"]
    assert len(ctas) == 66 + 60 + 6


def test_ctas_stay_beside_their_frame_and_inside_the_picture():
    root = ElementTree.fromstring(drawing.svg(SPATIAL))
    squares = [(int(r.get("x")), int(r.get("y"))) for r in root.iter(f"{SVG}rect") if r.get("width") == "8"]
    assert len(set(squares)) == len(squares)
    assert max(x for x, _ in squares) + 8 <= int(root.get("width"))
    labels = sorted(int(t.get("y")) for t in root.iter(f"{SVG}text") if (t.text or "").startswith("role "))
    for upper, lower in zip(labels, labels[1:]):
        assert all(y + 8 <= lower - 10 for _, y in squares if upper < y < lower)


@pytest.mark.parametrize("shown", [SPATIAL, plan([("tensor", 0, 132)], []), plan([("simt", 0, 132)] * 2, [])])
def test_the_legend_stands_below_all_else(shown):
    root = ElementTree.fromstring(drawing.svg(shown))
    legend = [int(t.get("y")) for t in root.iter(f"{SVG}text") if t.get("x") == "54"]
    drawn = [r for r in root.iter(f"{SVG}rect") if r.get("rx") in ("1.5", "6", "9")]
    assert legend and max(float(r.get("y")) + float(r.get("height")) for r in drawn) < min(legend) - 12
    assert max(legend) < int(root.get("height"))


def test_arcs_that_overlap_lie_in_different_lanes():
    root = ElementTree.fromstring(drawing.svg(SPATIAL))
    arcs = [path.get("d") for path in root.iter(f"{SVG}path") if "Q" in path.get("d")]
    assert len(arcs) == 2
    assert len({re.search(r"Q(\d+)", arc)[1] for arc in arcs}) == 2


@pytest.mark.parametrize("empty", [{"target": "cpu", "pipelines": []}])
def test_a_plan_without_pipelines_says_so(empty):
    assert "no pipelines" in drawing.svg(empty)
    assert drawing.dot(empty).startswith("digraph")
