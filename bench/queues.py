"""Payload rates of queues on every transport, on generated code.

    python bench/queues.py make DIR              # here: kernels -> DIR (needs torch-mlir, llvmlite and ptxas, no GPU)
    python bench/queues.py run DIR [--out FILE]  # there: checks, times, prints a table (needs numpy, cuda-bindings)

`make DIR --wait-budget N` makes kernels for debugging: one that would hang says what for. They are slower.

Rates are GB/s of payload one way, all 66 pairs together; what was sent and what was received, counted together, is
twice that. `run` exits with 1 if a kernel fails or what arrives is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.queue_cases import PAYLOADS, Case, cases, serves

GOALS = {("dsmem", 16 * 1024): 2500, ("l2", 64 * 1024): 1450}  # GB/s
PATIENCE_S = 180  # for the kernels of one transport


def make(folder: Path, wait_budget: int) -> None:
    """Writes a PTX file and a cubin a transport, and cases.json. Raises RuntimeError where a kernel spills."""
    from bench.queue_kernels import build
    from kitsune_mlir import mlir
    from kitsune_mlir.codegen import ptx, ptxas
    from kitsune_mlir.codegen.pipeline.watch import Waits
    from kitsune_mlir.planning import target as targets

    folder.mkdir(parents=True, exist_ok=True)
    target = targets.load("sm_90a")
    descriptions: list[dict[str, Any]] = []
    for transport in sorted({case.transport for case in cases()}):
        chosen = [case for case in cases() if case.transport == transport]
        ctx, waits = mlir.context(), Waits(wait_budget)
        with ctx, mlir.ir.Location.unknown():
            module = mlir.ir.Module.create()
            with mlir.ir.InsertionPoint(module.body):
                text = ptx.to_ptx(build(chosen, transport, waits), target)
        assembled = ptxas.assemble(text, target)
        if assembled is None:
            raise RuntimeError("there is no ptxas")
        spilled = [name for name, info in assembled.kernels.items() if info.spill_stores or info.spill_loads]
        if spilled and not wait_budget:
            raise RuntimeError(f"kernels spill: {', '.join(spilled)}")
        (folder / f"{transport}.ptx").write_text(text)
        (folder / f"{transport}.cubin").write_bytes(assembled.cubin)
        for case in chosen:
            registers = assembled.kernels[case.name].registers
            described = {"cubin": f"{transport}.cubin", "registers": registers, "watched": waits.described}
            descriptions.append(case.description() | described)
    (folder / "cases.json").write_text(json.dumps(descriptions, indent=1))
    print(f"{len(descriptions)} kernels in {folder}")


def run(folder: Path, out: Path | None) -> int:
    """Runs every kernel, a process a transport: a failure ends the process, and the rest goes on in the next."""
    descriptions = json.loads((folder / "cases.json").read_text())
    results: list[dict[str, Any]] = []
    for transport in sorted({description["transport"] for description in descriptions}):
        names = [d["name"] for d in descriptions if d["transport"] == transport]
        while names:
            found = _in_a_process(folder, names)
            results += found
            done = {result["name"] for result in found}
            names = [name for name in names if name not in done]
    if out is not None:
        out.write_text(json.dumps(results, indent=1))
    print(table(results))
    failed = [result for result in results if "failed" in result]
    for result in failed:
        print(f"FAILED {result['name']}: {result['failed']}")
    return 1 if failed else 0


def _in_a_process(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """The results that a process gives before it ends; it accounts for one name at least. Ends the program if the
    process cannot use the GPU."""
    command = [sys.executable, __file__, "some", str(folder), *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        said, error = done.stdout, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as late:
        said, error = (late.stdout or b"").decode(), f"did not end in {PATIENCE_S} s"
    ready, *found = [json.loads(line) for line in said.splitlines() if line.startswith("{")] or [None]
    if ready is None:
        sys.exit(f"the GPU cannot be used: {error}")
    if len(found) < len(names) and not any("failed" in result for result in found):
        name = next(name for name in names if name not in {result["name"] for result in found})
        transport = name.rsplit("_", 5)[0]
        found.append({"name": name, "transport": transport, "failed": error})
    return found


def some(folder: Path, names: list[str]) -> None:
    """The child process: a line of JSON for each kernel that it came to."""
    from bench.queue_gpu import run as run_here

    for result in run_here(folder, names):
        print(json.dumps(result), flush=True)


COLUMNS = {  # heading: transport, touch, mode, sides
    "smem": ("smem", "stamp", "synchronised", "both"),
    "smem all": ("smem", "all", "synchronised", "both"),
    "smem free": ("smem", "all", "free", "both"),
    "dsmem": ("dsmem", "stamp", "synchronised", "both"),
    "dsmem all": ("dsmem", "all", "synchronised", "both"),
    "dsmem batch": ("dsmem", "stamp", "batched", "both"),
    "l2": ("l2", "stamp", "synchronised", "both"),
    "l2 all": ("l2", "all", "synchronised", "both"),
    "l2 free": ("l2", "stamp", "free", "both"),
    "l2 send": ("l2", "stamp", "free", "send"),
    "l2 recv": ("l2", "stamp", "free", "receive"),
    "ld/st": ("l2_ldst", "all", "synchronised", "both"),
    "ld/st free": ("l2_ldst", "all", "free", "both"),
    "ld/st send": ("l2_ldst", "all", "free", "send"),
    "ld/st recv": ("l2_ldst", "all", "free", "receive"),
    "reg": ("reg", "all", "synchronised", "both"),
}


def table(results: list[dict[str, Any]]) -> str:
    """GB/s by payload: for each the best slot size and lag of those that serve it, its slot in the JSON."""
    lines = [
        "GB/s of payload one way, 66 pairs. Plain: a stamp at either end of a piece is written and checked; 'all':",
        "each byte is written by the sender's threads, summed by the receiver's; 'free': no waits or signals (bound);",
        "'batch': one handshake for 256 KB; 'send', 'recv': one side alone, free. ld/st: a ring with loads and stores.",
        f"{'payload':>8}" + "".join(f"{heading:>12}" for heading in COLUMNS),
    ]
    for payload in PAYLOADS:
        cells = [_best(results, column, payload) for column in COLUMNS.values()]
        lines.append(f"{payload // 1024:>5} KB" + "".join(f"{cell:>12.0f}" if cell else f"{'-':>12}" for cell in cells))
    for (transport, payload), goal in GOALS.items():
        found = _best(results, (transport, "stamp", "synchronised", "both"), payload)
        verdict = "reached" if found and found >= goal else "MISSED"
        lines.append(f"goal {transport} {payload // 1024} KB: {found or 0:.0f} of {goal} GB/s, {verdict}")
    return "\n".join(lines)


def _best(results: list[dict[str, Any]], column: tuple[str, str, str, str], payload: int) -> float | None:
    found = []
    for result in results:
        if "gbps" in result and tuple(result[name] for name in ("transport", "touch", "mode", "sides")) == column:
            case = Case(**{name: result[name] for name in Case.__dataclass_fields__})
            if serves(case, payload):
                found.append(result["gbps"])
    return max(found, default=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "run", "some"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "run":
            command.add_argument("--out", type=Path, help="results as JSON")
        if name == "some":
            command.add_argument("names", nargs="+")
        if name == "make":
            command.add_argument("--wait-budget", type=int, default=0, help="questions after which a wait gives up")
    options = parser.parse_args()
    if options.command == "make":
        make(options.folder, options.wait_budget)
    elif options.command == "some":
        some(options.folder, options.names)
    else:
        return run(options.folder, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
