"""Predicted over measured, by what kind of kernel it is, from the files of fuzz.py and kitsune bench.

    python bench/fuzz.py --seeds 41000:41100 --jobs 16 --kernels --json nets.jsonl
    kitsune bench --suite zoo --kernels --fast --json zoo.json
    python bench/calibrate.py nets.jsonl zoo.json

The constants that predictions are made of stand in targets/*.json and in kitsune_mlir/planning/: kernel_cost.py for
single operators and copies, product_tiles.py for scheduled products, cost.py for pipelines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kitsune_mlir.bench.kernels import kind, over_measured  # noqa: E402

WORST = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="JSON lines of fuzz.py, or JSON of kitsune bench")
    kinds: dict[str, list[tuple[float, str, dict[str, Any]]]] = defaultdict(list)
    for path in parser.parse_args(arguments).files:
        for name, launch in launches(path.read_text()):
            if found := over_measured(launch):
                kinds[kind(launch)].append((found, name, launch))
    if not kinds:
        print("there is no measured kernel in these files: make them with --kernels on a GPU", file=sys.stderr)
        return 1
    print(f"{'kind':24} {'number':>6} {'us':>9} {'10 %':>6} {'median':>6} {'90 %':>6}")
    for label, members in sorted(kinds.items(), key=lambda item: -_us(item[1])):
        ratios = sorted(found for found, _, _ in members)
        low, middle, high = _at(ratios, 0.1), statistics.median(ratios), _at(ratios, 0.9)
        print(f"{label:24} {len(ratios):6} {_us(members):9.1f} {low:6.2f} {middle:6.2f} {high:6.2f}")
    for label, members in sorted(kinds.items(), key=lambda item: -_us(item[1])):
        print(f"\n{label}: the worst, by microseconds that they are off")
        for found, name, launch in sorted(members, key=lambda one: -_off(one[2]))[:WORST]:
            times = f"{launch['predicted_us']:8.1f} of {launch['measured_us']:8.1f} us"
            print(f"  {found:6.2f}  {times}  {_line(name, launch)}")
    return 0


def launches(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every launch of a file, with the name of its net or case."""
    records = json.loads(text)["cases"] if text.startswith("{\n") else map(json.loads, text.splitlines())
    for record in records:
        name = record["case"] if "case" in record else f"seed {record['seed']}"
        for launch in record.get("kernels") or ():
            yield name, launch


def _us(members: Sequence[tuple[float, str, dict[str, Any]]]) -> float:
    return sum(launch["measured_us"] for _, _, launch in members)


def _off(launch: dict[str, Any]) -> float:
    return abs(float(launch["predicted_us"] - launch["measured_us"]))


def _at(ratios: Sequence[float], share: float) -> float:
    return ratios[min(len(ratios) - 1, int(share * len(ratios)))]


def _line(name: str, launch: dict[str, Any]) -> str:
    sizes = launch.get("work") or {key: launch[key] for key in ("tile", "ctas", "slots") if launch[key]}
    told = " ".join(f"{key}={value}" for key, value in sizes.items())
    return f"{launch['limit']:12} {name} {launch['kernel']} ({launch['computes']}) {told}"


if __name__ == "__main__":
    sys.exit(main())
