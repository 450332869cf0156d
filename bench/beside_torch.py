"""Many cases beside torch, compiled side by side and timed one at a time: ours, eager mode and torch.compile.

    python bench/beside_torch.py --suite zoo-small --suite zoo --suite zoo-large --seeds 0:100 --jobs 14
    python bench/beside_torch.py --suite everyday --json everyday.jsonl
    python bench/beside_torch.py zoo/geglu net-17 --json cases.jsonl
    python bench/beside_torch.py --seeds 0:100 --called     # torch.compile(mode="reduce-overhead"), as it is called

`kitsune bench` makes each side ready in the process that times it, one after another, which takes some ten seconds a
case for torch.compile. Here processes compile ours and torch's first, the latter for its cache; a few others take both
from there, and have the GPU by turns. All run as CUDA graphs: torch.compile's code is captured in one, as its mode
reduce-overhead does it, without what that mode's host code takes at each call; with --called that mode is called
as its users call it. So is what torch can't capture, as where a model makes tensors on the CPU. Times are the
shortest of several rounds, in which the sides take turns, for others compile on the GPU meanwhile. "Best" is the
faster of torch's two.
Results are compared with float64 as `kitsune bench` does. Exits 1 when one of ours is wrong or has not run; where
torch's is so, that is said, and ours is timed beside what is left of torch's.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from workers import Lost, each  # noqa: E402

from kitsune_mlir.bench import cases  # noqa: E402
from kitsune_mlir.bench.device import Call, Machine  # noqa: E402

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there are as many processes as cores already
SECONDS = 240.0  # for a case to be compiled, or to be timed
RUNNERS = 4  # processes that take what is compiled
ROUNDS = 15
WARM_UP = 3


@dataclass(frozen=True)
class Task:
    """A case, what it is compiled for, the folder for its artifact, and whether torch.compile is to be called as its
    users call it, not captured in a graph."""

    case: str
    target: str
    folder: str
    called: bool = False

    @property
    def artifact(self) -> Path:
        return Path(self.folder, f"{quote(self.case, safe='')}.kitsune")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="as `kitsune bench` takes them")
    parser.add_argument("--suite", action="append", default=[], choices=cases.SUITES)
    parser.add_argument("--seeds", metavar="FIRST:END", help="of random nets")
    parser.add_argument("--jobs", type=int, default=2, help="processes that compile")
    parser.add_argument("--target", default="sm_90a", help="of our kernels")
    parser.add_argument("--called", action="store_true", help="torch.compile's mode reduce-overhead, as it is called")
    parser.add_argument("--json", type=Path, help="writes a line a case")
    options = parser.parse_args()
    if not _has_gpu():
        parser.error("cases are timed on an NVIDIA GPU, and torch finds none here")
    with tempfile.TemporaryDirectory() as folder:
        names = chosen(options.cases, options.suite, options.seeds)
        tasks = iter([Task(name, options.target, folder, options.called) for name in names])
        return _report(_run(tasks, options.jobs), options.json)


def chosen(named: Sequence[str], suites: Sequence[str], seeds: str | None) -> list[str]:
    """The names of the cases, each once, however often it is asked for: a case has one artifact."""
    names = [*named, *(name for suite in suites for name in cases.suite(suite))]
    if seeds:
        first, _, end = seeds.partition(":")
        names += [f"net-{seed}" for seed in range(int(first), int(end or int(first) + 1))]
    return list(dict.fromkeys(names))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _run(tasks: Iterator[Task], jobs: int) -> Iterator[dict[str, Any]]:
    failed: list[dict[str, Any]] = []

    def compiled() -> Iterator[tuple[Task, dict[str, Any]]]:
        for task, found in each(prepare, tasks, jobs, SECONDS):
            if isinstance(found, Lost) or "said" in found:
                failed.append({"case": task.case, "said": str(found) if isinstance(found, Lost) else found["said"]})
            else:
                yield task, found

    for (task, found), timed in each(time_case, compiled(), RUNNERS, SECONDS):
        task.artifact.unlink(missing_ok=True)
        said = {"said": str(timed)} if isinstance(timed, Lost) else timed
        yield {"case": task.case, **found, **said}
    yield from failed


def prepare(task: Task) -> dict[str, Any]:
    """A child's work: our artifact of a case, and torch.compile's code in its cache. {predicted: ms} or {said}."""
    import torch

    import kitsune_mlir
    from kitsune_mlir.bench.measure import Settings, make
    from kitsune_mlir.bench.sides import matmul_precision

    torch.set_num_threads(1)
    with matmul_precision(None):
        try:
            case = cases.find(task.case, None)
            module, args, shapes = make(case, Settings())
            compiled = kitsune_mlir.compile(
                module, args, target=task.target, dynamic_shapes=shapes, options={**case.form}
            )
            compiled.save(task.artifact)
            _fused(*_moved(module, args), task.called)
            torch.cuda.empty_cache()
        except Exception as error:
            return {"said": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return {"predicted": (compiled.plan["predicted_us"] or 0.0) / 1e3}


def _moved(module: Any, args: Any) -> tuple[Any, Any]:
    import torch
    from torch.utils._pytree import tree_map

    return module.cuda(), tree_map(lambda leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf, args)


def _fused(module: Any, args: Any, called: bool) -> Call | None:
    """torch.compile's code, which has run, or its mode reduce-overhead; None where it can't."""
    import torch

    from kitsune_mlir.bench.sides import torch_compiled

    torch.compiler.reset()
    try:
        with torch.no_grad():
            function = torch_compiled(module, args, "reduce-overhead" if called else "default")
        torch.cuda.synchronize()
    except torch._dynamo.exc.TorchDynamoException:
        return None
    return function


def _captured(gpu: Machine, call: Call, as_called: bool) -> Call:
    """A CUDA graph of a call; where its code can't be captured the call itself, if that may be timed `as_called`."""
    try:
        return gpu.capture(lambda: [call() for _ in range(WARM_UP)], call)
    except RuntimeError:
        if not as_called:
            raise
        gpu.wait()
        return call


def time_case(prepared: tuple[Task, Any]) -> dict[str, Any]:
    """A child's work: milliseconds of each side that is right, ours' error and the largest that is right. {said}
    instead of times when ours is wrong or fails, {torch} besides when eager mode does."""
    import torch

    import kitsune_mlir
    from kitsune_mlir.bench import check
    from kitsune_mlir.bench.device import Gpu
    from kitsune_mlir.bench.measure import Settings, check_sides, make
    from kitsune_mlir.bench.sides import Side, matmul_precision, tensors

    task, gpu = prepared[0], Gpu()
    with matmul_precision(None), torch.no_grad(), Path(task.folder, "lock").open("w") as lock:
        module, args = _moved(*make(cases.find(task.case, None), Settings())[:2])
        ours = kitsune_mlir.load(task.artifact)
        ways = {
            "eager": lambda: tensors(module(*args)),
            "compiled": _fused(module, args, task.called),
            "ours": lambda: tensors(ours(*args)),
        }
        sides = {name: Side(name, call) for name, call in ways.items() if call is not None}
        fcntl.flock(lock, fcntl.LOCK_EX)
        check.refresh(args, 1)  # inputs that ours was not compiled with
        bound = check_sides([*sides.values()], module, args, gpu)["bound"]
        found: dict[str, Any] = {"error": sides["ours"].error, "bound": bound}
        if sides["ours"].said:
            return found | {"said": sides["ours"].said}
        if sides["eager"].said:
            found["torch"] = sides["eager"].said
        calls = {name: side.call for name, side in sides.items() if side.call and not side.said}
        for name, call in calls.items():
            if name != "compiled" or not task.called:
                calls[name] = _captured(gpu, call, as_called=name != "ours")
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(gpu.time(call, cold=False))
        del calls, call
        gpu.clear()
    return found | {name: min(taken) for name, taken in times.items()}


def _report(results: Iterator[dict[str, Any]], path: Path | None) -> int:
    everything, failed, torch_failed = [], 0, 0
    file = path.open("w") if path else None
    for result in results:
        everything.append(result)
        if file:
            file.write(json.dumps(result) + "\n")
            file.flush()
        if "said" in result:
            failed += 1
            print(f"{result['case']}: {result['said']}", flush=True)
        if "torch" in result:
            torch_failed += 1
            print(f"{result['case']}: torch's eager mode: {result['torch']}", flush=True)
    timed = [result for result in everything if "ours" in result and ("eager" in result or "compiled" in result)]
    print(f"{len(everything)} cases, {failed} failed; in {torch_failed} torch's eager mode did")
    for name, ones in _groups(timed).items():
        _summary(name, ones)
    return int(failed > 0)


def _groups(timed: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in timed:
        groups.setdefault("random nets" if one["case"].startswith("net-") else "cases", []).append(one)
    return groups


def _summary(name: str, timed: list[dict[str, Any]]) -> None:
    def ratios(side: str) -> list[float]:
        return [one[side] / one["ours"] for one in timed if side in one]

    for one in timed:
        one["best"] = min(one[side] for side in ("eager", "compiled") if side in one)
    best = ratios("best")
    means = ", ".join(
        f"{side} {statistics.geometric_mean(ratios(side)):.2f}"
        for side in ("eager", "compiled", "best")
        if ratios(side)
    )
    print(f"{len(timed)} {name}: torch over ours, geometric means: {means}")
    under = ", ".join(f"{sum(ratio < bound for ratio in best)} under {bound}" for bound in (0.7, 0.9, 1.0))
    told = statistics.median(one["predicted"] / one["ours"] for one in timed)
    print(f"    best: median {statistics.median(best):.2f}, {under}; predicted over measured {told:.2f}")
    for one in sorted(timed, key=lambda one: one["best"] / one["ours"])[:10]:
        print(f"    {one['best'] / one['ours']:.2f} ({one['ours']:.4f} ms), {one['case']}")


if __name__ == "__main__":
    sys.exit(main())
