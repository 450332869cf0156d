"""Records of measure.py as text: a table of the sides of each case, losers and failures too, and a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.plan_report import _table as columns

TEMPERATURES = ("warm", "cold")
COLUMNS = "floor,best torch,mode,ours,ours graph,torch/ours,ours/floor,error,compile s,".split(",")
SAID = 160  # characters of a failure that a table shows; the JSON has all


def case_text(record: dict[str, Any]) -> str:
    """Every side of one case, a line each; why there are none, for a case that failed as a whole."""
    if "sides" not in record:
        return f"{record['case']}: {record['said']}"
    floor = record["floor"]
    lines = [
        f"{record['case']}, {record['dtype']}: floor {floor['ms']:.3f} ms ({floor['bound']};"
        f" {floor['operations'] / 1e9:.1f} GFLOP, {floor['bytes'] / 1e6:.1f} MB at {floor['tflops']:g} TFLOP/s,"
        f" {floor['dram_gbps']:g} GB/s), errors against {record['reference']}"
    ]
    if plan := record.get("plan"):
        operators = plan["operators"]
        lines.append(
            f"  plan: {operators['pipelined']} of {operators['total']} operators in {plan['pipelines']} pipelines,"
            f" {plan['kernels']} kernels, predicted {plan['predicted_us'] / 1e3:.3f} ms"
        )
    lines += columns([_side(name, side, floor) for name, side in record["sides"].items()])
    for name, moved in record.get("dram", {}).items():
        lines.append(f"  DRAM, {name}: {moved['said']}" if "said" in moved else f"  DRAM, {name}: {_moved(moved)}")
    return "\n".join(lines)


def summary(records: Sequence[dict[str, Any]], temperature: str) -> str:
    """A line a case: the best of torch, ours, and how they compare."""
    return "\n".join([f"L2 {temperature}, ms", *columns([_row(record, temperature) for record in records])])


def _side(name: str, side: dict[str, Any], floor: dict[str, Any]) -> dict[str, Any]:
    times = {
        f"{t} ms": f"{side[t]['ms']:.3f} ({side[t]['min']:.3f} to {side[t]['max']:.3f})" if t in side else "-"
        for t in TEMPERATURES
    }
    fastest = min((side[t]["ms"] for t in TEMPERATURES if t in side), default=None)
    rate = floor["operations"] / fastest / 1e9 if fastest else None
    return {
        "side": name,
        **times,
        "TFLOP/s": "-" if rate is None else f"{rate:.0f}",
        "error": "-" if side["error"] is None else f"{side['error']:.1e}",
        "ready in s": f"{side['compile_seconds']:.1f}",
        "": side["said"][:SAID],
    }


def _row(record: dict[str, Any], temperature: str) -> dict[str, Any]:
    row = {"case": record["case"], **dict.fromkeys(COLUMNS, "-")}
    if "sides" not in record:
        return row | {"": record["said"][:SAID]}
    ours, best = record["sides"]["kitsune"], record["best_torch"].get(temperature)
    times = {name: f"{side[temperature]['ms']:.3f}" for name, side in record["sides"].items() if temperature in side}
    row |= {
        "floor": f"{record['floor']['ms']:.3f}",
        "compile s": f"{ours['compile_seconds']:.1f}",
        "": ours["said"][:SAID],
    }
    row |= {"best torch": times[best], "mode": best} if best else {}
    row |= {"ours": times["kitsune"]} if "kitsune" in times else {}
    row |= {"ours graph": times["kitsune-graph"]} if "kitsune-graph" in times else {}
    row |= {name: f"{value:.2f}" for name, value in record["ratios"][temperature].items() if value is not None}
    return row | ({} if ours["error"] is None else {"error": f"{ours['error']:.1e}"})


def _moved(moved: dict[str, Any]) -> str:
    total = moved["read"] + moved["written"]
    return f"{moved['read'] / 1e6:.1f} MB read, {moved['written'] / 1e6:.1f} MB written, {total / 1e6:.1f} MB in all"
