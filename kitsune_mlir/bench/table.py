"""Records of measure.py as text: the sides of each case, losers and failures too; a line a case; Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from kitsune_mlir.plan_report import folded
from kitsune_mlir.plan_report import table as columns

from .cases import AS, TORCH_MODES
from .kernels import kind, over_measured
from .shapes import SQUARE
from .sides import OURS

TEMPERATURES = ("warm", "cold")
COLUMNS = (
    "floor,best torch,mode,plain,ours,ours graph,predicted,TFLOP/s,torch/ours,plain/ours,ours/floor,"
    "predicted/ours,error,rows checked,compile s,"
).split(",")
RATIOS = {"torch/ours": "the best torch", "plain/ours": "cuBLAS + epilogue kernels"}
OURS_FIRST = (*OURS, *TORCH_MODES).index
SLOW = 0.9  # a ratio below is told
WORST = 10  # cases that a summary names
OFF = 1.5  # a prediction that is further off than so many times is marked
SAID = 160  # characters of a failure that a table shows; the JSON has all


def case_text(record: dict[str, Any]) -> str:
    """Every side of one case, a line each; why there are none, for a case that failed as a whole."""
    if "sides" not in record:
        return f"{record['case']}: {record['said']}"
    floor = record["floor"]
    lines = [
        f"{record['case']}, {_type(record)}: floor {floor['ms']:.3f} ms ({floor['bound']};"
        f" {floor['operations'] / 1e9:.1f} GFLOP, {floor['bytes'] / 1e6:.1f} MB at {floor['tflops']:g} TFLOP/s,"
        f" {floor['dram_gbps']:g} GB/s), {record['checked_rows']} rows against {record['reference']}"
    ]
    if plan := record.get("plan"):
        operators = plan["operators"]
        lines.append(
            f"  plan: {operators['pipelined']} of {operators['total']} operators in {plan['pipelines']} pipelines,"
            f" {plan['kernels']} kernels, predicted {plan['predicted_us'] / 1e3:.3f} ms{_against(record)},"
            f" compiled in {record['compiled']['seconds']:.1f} s"
        )
    lines += columns([_side(name, side, floor) for name, side in record["sides"].items()])
    if record.get("kernels"):
        lines += ["  kernels, us", *columns(folded(map(_kernel, record["kernels"])))]
    for name, moved in record.get("dram", {}).items():
        lines.append(f"  DRAM, {name}: {moved['said']}" if "said" in moved else f"  DRAM, {name}: {_moved(moved)}")
    return "\n".join(lines)


def _kernel(launch: dict[str, Any]) -> dict[str, Any]:
    """A launch's predicted and measured times, marked where these differ."""
    found = over_measured(launch)
    return {
        "kernel": launch["kernel"],
        "kind": kind(launch),
        "predicted": f"{launch['predicted_us']:.1f}",
        "measured": "-" if launch["measured_us"] is None else f"{launch['measured_us']:.1f}",
        "predicted/measured": "-" if found is None else f"{found:.2f}" + (" off" if _is_off(found) else ""),
        "limit": launch["limit"],
    }


def _against(record: dict[str, Any]) -> str:
    """What the prediction is over the measured time at each temperature, in brackets."""
    told = [f"{_told(record, t)} of measured {t}" for t in record["ratios"] if _told(record, t)]
    return f" ({', '.join(told)})" if told else ""


def _told(record: dict[str, Any], temperature: str) -> str:
    """The prediction over the measured time, marked where it is off."""
    found = record.get("ratios", {}).get(temperature, {}).get("predicted/ours")
    if found is None:
        return ""
    return f"{found:.2f}" + (" off" if _is_off(found) else "")


def _is_off(found: float) -> bool:
    return not 1 / OFF <= found <= OFF


def _type(record: dict[str, Any]) -> str:
    """A case's element type; with the precision of f32 products where it is not the highest."""
    precision = record["matmul_precision"]
    tf32 = record["dtype"] == "float32" and precision != "highest"
    return f"float32 in {precision} precision" if tf32 else record["dtype"]


def line(record: dict[str, Any], temperature: str) -> str:
    """A case as it goes by."""
    case, *rest = _row(record, temperature).items()
    return f"{case[1]}: " + ", ".join(f"{name} {value}".strip() for name, value in rest if value not in ("", "-"))


def summary(records: Sequence[dict[str, Any]], temperature: str) -> str:
    """A line a case: the best of torch, ours, and how they compare; then over all cases."""
    lines = columns([_row(record, temperature) for record in records])
    return "\n".join([f"L2 {temperature}, ms", *lines, *(f"  {line}" for line in _overall(records, temperature))])


def markdown(records: Sequence[dict[str, Any]], temperature: str) -> str:
    """The same for a document."""
    rows = [_row(record, temperature) for record in records]
    lines = [f"L2 {temperature}, ms:", "", _cells(list(rows[0])), "|" + "---|" * len(rows[0])]
    return "\n".join([*lines, *(_cells(list(row.values())) for row in rows), "", *_overall(records, temperature)])


def _cells(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"


def _overall(records: Sequence[dict[str, Any]], temperature: str) -> list[str]:
    """A sentence for each ratio, with its geometric mean and the worst cases, and one on the predictions; which
    cases are not compared with torch. The largest product counts for itself, and so do forms that the planner did not
    take."""
    counted = [record for record in records if record["case"] != SQUARE and AS not in record["case"]]

    def found(ratio: str) -> dict[str, float]:
        ratios = {record["case"]: record.get("ratios", {}).get(temperature, {}).get(ratio) for record in counted}
        return {case: value for case, value in ratios.items() if value}

    lines = []
    for ratio, against in RATIOS.items():
        if len(values := found(ratio)) < 2:
            continue
        slow = sum(value < SLOW for value in values.values())
        worst = ", ".join(f"{values[case]:.2f} ({case})" for case in sorted(values, key=values.__getitem__)[:WORST])
        lines.append(
            f"Against {against} ({ratio}): geometric mean of {len(values)} cases"
            f" {statistics.geometric_mean(values.values()):.2f}, {slow} under {SLOW:g}; worst {worst}."
        )
    if len(values := found("predicted/ours")) > 1:
        off = sum(map(_is_off, values.values()))
        lines.append(
            f"Predicted over measured: median of {len(values)} cases {statistics.median(values.values()):.2f},"
            f" {off} off by more than {OFF:g}."
        )
    compared = found("torch/ours")
    if missing := [record["case"] for record in counted if record["case"] not in compared]:
        lines.append(f"Not compared with torch: {', '.join(missing)}.")
    return lines


def _side(name: str, side: dict[str, Any], floor: dict[str, Any]) -> dict[str, Any]:
    times = {
        f"{t} ms": f"{side[t]['ms']:.3f} ({side[t]['min']:.3f} to {side[t]['max']:.3f})" if t in side else "-"
        for t in TEMPERATURES
    }
    fastest = min((side[t]["ms"] for t in TEMPERATURES if t in side), default=None)
    return {
        "side": name,
        **times,
        "TFLOP/s": "-" if fastest is None else _rate(floor, fastest),
        "error": "-" if side["error"] is None else f"{side['error']:.1e}",
        "ready in s": f"{side['ready_seconds']:.1f}",
        "": side["said"][:SAID],
    }


def _row(record: dict[str, Any], temperature: str) -> dict[str, str]:
    row = {"case": record["case"], **dict.fromkeys(COLUMNS, "-"), "": ""}
    if "sides" not in record:
        return row | {"": record["said"][:SAID]}
    sides, floor = record["sides"], record["floor"]
    ours = sides["kitsune"]
    times = {name: _ms(side[temperature]["ms"]) for name, side in sides.items() if temperature in side}
    row |= {"floor": _ms(floor["ms"]), "rows checked": str(record["checked_rows"]), "": _said(sides)}
    if best := record["best_torch"].get(temperature):
        row |= {"best torch": times[best], "mode": best}
    if plain := record["best_plain"].get(temperature):
        row["plain"] = times[plain]
    if fastest := record["best_ours"].get(temperature):
        row["TFLOP/s"] = _rate(floor, sides[fastest][temperature]["ms"])
    row |= {
        column: times[name] for column, name in (("ours", "kitsune"), ("ours graph", "kitsune-graph")) if name in times
    }
    row |= {name: f"{value:.2f}" for name, value in record["ratios"][temperature].items() if value is not None}
    row |= {} if ours["error"] is None else {"error": f"{ours['error']:.1e}"}
    if "compiled" in record:
        row["predicted/ours"] = _told(record, temperature) or "-"
        row["predicted"] = _ms(record["plan"]["predicted_us"] / 1e3)
        row["compile s"] = f"{record['compiled']['seconds']:.1f}"
    return row


def _said(sides: dict[str, Any]) -> str:
    """Why the first side that is not timed is not; ours before torch's."""
    failures = [f"{name}: {sides[name]['said']}" for name in sorted(sides, key=OURS_FIRST) if sides[name]["said"]]
    return failures[0][:SAID] if failures else ""


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.3f}" if milliseconds >= 0.1 else f"{milliseconds:.4f}"


def _rate(floor: dict[str, Any], milliseconds: float) -> str:
    return f"{floor['operations'] / milliseconds / 1e9:.0f}" if milliseconds else "-"


def _moved(moved: dict[str, Any]) -> str:
    total = moved["read"] + moved["written"]
    return f"{moved['read'] / 1e6:.1f} MB read, {moved['written'] / 1e6:.1f} MB written, {total / 1e6:.1f} MB in all"
