"""Random networks, compiled and compared with float64: nothing may hang, die, be refused or be wrong.

    python bench/fuzz.py --seeds 0:200                  # a GPU: compiles in a pool, runs in a child, times
    python bench/fuzz.py --seeds 0:50 --simulate        # without one: the kernels in the simulator, few rows
    python bench/fuzz.py --shrink 17 --simulate         # the smallest net that still fails as seed 17 does
    python bench/fuzz.py --kernels --json nets.jsonl    # each kernel's time beside the predicted one (calibrate.py)
    python bench/fuzz.py --roles --simulate             # nets whose stages are to have CTAs of their own

A net is that of one seed (kitsune_mlir/bench/draw_nets.py; `kitsune bench net-SEED` times it beside all of torch's
modes). A result is wrong when its error (Frobenius norm, over that of the result) is more than twice torch's own in the
same types, and more than FLOOR (fuzz_verdicts.py); of a few rows on average over several arguments. A child that takes
too long or dies is replaced. On a GPU each net is also timed, in one process beside torch's eager mode as a CUDA graph.
With --roles nets are linear layers of 16 bits one behind another and side by side (draw_nets.draw_roles), compiled with
place-stages=shape=spatial, which some cannot have: those are counted as declined, and do not fail. The summary says how
many had kernels of roles. Exits 1 when a net fails.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from fuzz_verdicts import DECLINED, RIGHT, WRONG, Found, Task, judge, leaves  # noqa: E402
from workers import Lost, Worker, each  # noqa: E402

from kitsune_mlir.bench.draw_nets import draw, draw_roles  # noqa: E402
from kitsune_mlir.bench.kernels import beside  # noqa: E402
from kitsune_mlir.bench.random_nets import Net, arguments, build, is_net  # noqa: E402
from kitsune_mlir.bench.smaller_nets import smaller  # noqa: E402
from kitsune_mlir.errors import UnsupportedError, UserError  # noqa: E402
from kitsune_mlir.planning.target import load  # noqa: E402

SIMULATED_ROWS, SIMULATED_SMS = 300, 4
ROLE_ROWS, ROLE_SMS = 700, (4, 6, 9, 12)  # in the simulator: CTAs of several roles, which go round their rings
ROLES = {"place-stages": "shape=spatial"}
COMPILE_SECONDS, RUN_SECONDS = 180.0, 40.0
PROFILED = 7  # runs
RUNNERS = 2  # processes that have the GPU where nothing is timed
REPEATED = 8  # runs whose results have the bits of the first's, half of them with the GPU behind the host
LATE = 200_000  # cycles


def main() -> int:
    """Runs what was asked for; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="FIRST:END, or one number")
    parser.add_argument("--simulate", action="store_true", help="run kernels in the simulator, nets of few rows")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="make a failing net smaller")
    parser.add_argument("--jobs", type=int, default=2, help="processes that compile")
    parser.add_argument("--target", default="sm_90a", help="of the kernels on a GPU")
    parser.add_argument("--no-time", action="store_true", help="check only")
    parser.add_argument("--kernels", action="store_true", help="time each kernel by itself")
    parser.add_argument("--roles", action="store_true", help="nets whose stages are to have CTAs of their own")
    parser.add_argument("--json", type=Path, help="writes a line a net")
    options = parser.parse_args()
    if options.kernels and not _may_time(options):
        parser.error("--kernels times kernels on an NVIDIA GPU, and either torch finds none here or nets are not timed")
    with tempfile.TemporaryDirectory() as folder:
        timed = not (options.no_time or options.simulate)

        def task(seed: int) -> Task:
            made = drawn(seed, folder, options.roles, None if options.simulate else options.target)
            return replace(made, timed=timed, kernels=timed and options.kernels)

        if options.shrink is not None:
            return _shrink(task(options.shrink), options.simulate)
        first, _, end = options.seeds.partition(":")
        tasks = map(task, range(int(first), int(end or int(first) + 1)))
        return _report(_run(tasks, options.simulate, options.jobs, 1 if timed else RUNNERS), options.json)


def drawn(seed: int, folder: str, roles: bool, target: str | None) -> Task:
    """The net of a seed for a target, or for a small one in the simulator, which is written to the folder."""
    if target is not None:
        return Task(draw_roles(seed) if roles else draw(seed), seed, folder, target, roles=roles)
    sms = ROLE_SMS[seed % len(ROLE_SMS)] if roles else SIMULATED_SMS
    path = load("sm_90a").override(name="small", sms=sms).save(Path(folder, f"sms-{sms}.json"))
    net = draw_roles(seed, ROLE_ROWS) if roles else draw(seed, SIMULATED_ROWS)
    return Task(net, seed, folder, path, roles=roles)


def _may_time(options: argparse.Namespace) -> bool:
    """Whether nets are to be timed, and there is a GPU."""
    import torch

    return not options.simulate and not options.no_time and torch.cuda.is_available()


def _run(tasks: Iterator[Task], simulated: bool, jobs: int, runners: int) -> Iterator[Found]:
    """All of them, in the order in which they are done; `runners` processes have the GPU."""
    if simulated:
        yield from _verdicts(each(simulate, tasks, jobs, COMPILE_SECONDS))
        return
    compiled: Iterator[Found] = _verdicts(each(compile_net, tasks, jobs, COMPILE_SECONDS))
    failed: list[Found] = []

    def sound() -> Iterator[Found]:
        for found in compiled:
            if found.verdict == RIGHT:
                yield found
            else:
                failed.append(found)

    for found, ran in each(run_net, sound(), runners, RUN_SECONDS):
        Path(found.task.folder, f"{found.task.seed}.kitsune").unlink(missing_ok=True)
        yield Found(found.task, "hangs or dies", str(ran)) if isinstance(ran, Lost) else ran
    yield from failed


def _verdicts(results: Iterator[tuple[Task, Any]]) -> Iterator[Found]:
    for task, result in results:
        yield Found(task, "compiler hangs or dies", str(result)) if isinstance(result, Lost) else result


def _compiled(task: Task, module: Any, args: Any) -> Any:
    import torch

    import kitsune_mlir

    torch.set_num_threads(1)
    options = ROLES if task.roles else {}
    return kitsune_mlir.compile(module, args, target=task.target, matmul_precision=task.net.precision, options=options)


def _refused(task: Task, error: Exception) -> Found:
    """Nets may not be refused, but with stages on CTAs of their own for a reason."""
    verdict = DECLINED if task.roles and isinstance(error, (UserError, UnsupportedError)) else "refused"
    return Found(task, verdict, f"{type(error).__name__}: {error}")


def _forms(plan: dict[str, Any]) -> dict[str, int]:
    pipelined = sum(kernel.get("threads", 0) > 0 for kernel in plan["kernels"])
    roles = sum(launch["form"] == "scheduled roles" for launch in plan["launches"])
    return {"pipelines": pipelined, "roles": roles, "operators": len(plan["kernels"]) - pipelined}


def compile_net(task: Task) -> Found:
    """A child's work: the artifact of a net, in the task's folder."""
    start = time.perf_counter()
    try:
        compiled = _compiled(task, *build(task.net, task.seed))
        compiled.save(Path(task.folder, f"{task.seed}.kitsune"))
    except Exception as error:
        return _refused(task, error)
    plan = compiled.plan
    forms = _forms(plan)
    predicted = (plan.get("predicted_us") or 0.0) / 1e3
    return Found(task, RIGHT, seconds=time.perf_counter() - start, forms=forms, predicted_ms=predicted)


def run_net(found: Found) -> Found:
    """The GPU child's work: a compiled net against float64, and beside torch."""
    import torch

    import kitsune_mlir
    from kitsune_mlir.bench.device import Gpu

    task, net = found.task, found.task.net
    torch.set_float32_matmul_precision(net.precision)
    module, _ = build(net, task.seed)
    module = module.cuda()
    args = tuple(value.cuda() for value in arguments(net, task.seed + 2))  # others than it was compiled with
    try:
        compiled = kitsune_mlir.load(Path(task.folder, f"{task.seed}.kitsune"))
        for again in range(2):  # the second run finds what the first one left
            _poison(module, args)
            results = compiled(*args)
            torch.cuda.synchronize()
            judge(found, module, args, results, compiled)
            if found.verdict != RIGHT:
                found.said = f"{'second' if again else 'first'} run"
                return found
        _repeat(found, compiled, args, results)
        if found.verdict != RIGHT:
            return found
        if task.timed and net.rows:
            _time(found, Gpu(), module, compiled, args)
    except Exception as error:
        found.verdict, found.said = "fails", f"{type(error).__name__}: {error}"
        if "CUDA" in found.said or "cuda" in found.said:
            raise  # nothing more runs in this process: another takes its place
    torch.cuda.empty_cache()
    return found


def _repeat(found: Found, compiled: Any, args: Any, results: Any) -> None:
    """Runs again and again, each time with nothing left between the kernels, where a race would show. Here alone sums
    may not come in another order: no net adds by index."""
    import torch

    first = [value.clone() for value in leaves(results)]
    for again in range(REPEATED):
        compiled._runner(compiled.target).clear_arenas()
        if again % 2:
            torch.cuda._sleep(LATE)
        for number, (one, other) in enumerate(zip(first, leaves(compiled(*args)), strict=True)):
            different = one.contiguous().view(torch.uint8) != other.contiguous().view(torch.uint8)
            if count := int(different.sum()):
                found.verdict, found.said = "differs", f"{count} bytes of result {number} in run {again} of {REPEATED}"
                return


def _poison(module: Any, args: Any) -> None:
    """Leaves NaN in the memory that results will get, but for what are views of the arguments."""
    import torch

    with torch.no_grad():
        results = leaves(module(*args))
    kept = {value.untyped_storage().data_ptr() for value in args}
    for result in results:
        if result.untyped_storage().data_ptr() not in kept:
            result.fill_(math.nan)


def _time(found: Found, gpu: Any, module: Any, compiled: Any, args: Any) -> None:
    """The median of a few runs of each side, in turns, as CUDA graphs."""
    import kitsune_mlir
    from kitsune_mlir.runtime.gpu import OVERLAP

    def ours() -> list[Any]:
        return leaves(compiled(*args))

    def theirs() -> list[Any]:
        return leaves(module(*args))

    sides = [gpu.capture(lambda side=side: [side() for _ in range(3)], side) for side in (ours, theirs)]
    times: list[list[float]] = [[], []]
    for _ in range(7):
        for side, taken in zip(sides, times):
            taken.append(gpu.time(side, cold=False))
    found.ours_ms, found.torch_ms = (statistics.median(taken) for taken in times)
    if found.task.kernels:  # one at a time, for what overlaps the kernel before it would seem to take as long, too
        os.environ[OVERLAP] = "0"
        alone = kitsune_mlir.load(Path(found.task.folder, f"{found.task.seed}.kitsune"))
        graph = gpu.capture(lambda: alone(*args), lambda: leaves(alone(*args)))
        del os.environ[OVERLAP]  # it was read at the first call
        launches = compiled.plan["launches"]
        found.kernels = beside(launches, gpu.trace(graph, PROFILED)) if launches else []


def simulate(task: Task) -> Found:
    """A child's work: compiles a net for a small GPU and runs its kernels in the simulator."""
    import torch

    from kitsune_mlir.tools.gpusim import Simulation

    found = Found(task, RIGHT)
    module, args = build(task.net, task.seed)
    try:
        compiled = _compiled(task, module, args)
    except Exception as error:
        return _refused(task, error)
    found.forms = _forms(compiled.plan)
    args = arguments(task.net, task.seed + 2)
    try:
        simulation = Simulation(compiled, seed=task.seed)
        for _ in range(task.launches):
            with torch.no_grad():
                judge(found, module, args, simulation(*args), simulation)
    except Exception as error:
        found.verdict, found.said = type(error).__name__, str(error)[:500]
    return found


def _report(results: Iterator[Found], path: Path | None) -> int:
    """Prints failures as they come and a summary; gives the exit code."""
    start, everything = time.perf_counter(), []
    file = path.open("w") if path else None
    for found in results:
        everything.append(found)
        if found.verdict not in (RIGHT, DECLINED):
            print(_line(found), flush=True)
        if file:
            line = {key: value for key, value in vars(found).items() if key != "task"}
            file.write(json.dumps({"seed": found.task.seed, "net": str(found.task.net), **line}) + "\n")
            file.flush()
    counts = Counter(found.verdict for found in everything)
    print(f"{len(everything)} nets in {time.perf_counter() - start:.0f} s: ", end="")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    if any(found.task.roles for found in everything):
        print(f"{sum(found.forms.get('roles', 0) > 0 for found in everything)} have kernels of roles")
    timed = [found for found in everything if found.ours_ms]
    if timed:
        _times(timed)
    return int(counts[RIGHT] + counts[DECLINED] < len(everything))


def _times(timed: list[Found]) -> None:
    ratios = sorted(found.ratio for found in timed)
    slower = sum(ratio < 1 for ratio in ratios) / len(ratios)
    print(f"torch's CUDA graph over ours: geometric mean {statistics.geometric_mean(ratios):.2f}, ", end="")
    print(f"median {statistics.median(ratios):.2f}, {slower:.0%} slower, {_below(ratios, 0.5):.0%} under half")
    told = [found.predicted_ms / found.ours_ms for found in timed if found.predicted_ms]
    if told:
        print(f"predicted over measured: median {statistics.median(told):.2f}")
    print(f"compile: median {statistics.median(found.seconds for found in timed):.1f} s")
    for found in sorted(timed, key=lambda one: one.ratio)[:10]:
        print(f"    {found.ratio:.2f} ({found.ours_ms:.3f} ms), seed {found.task.seed}: {found.task.net}")


def _below(ratios: list[float], bound: float) -> float:
    return sum(ratio < bound for ratio in ratios) / len(ratios)


def _line(found: Found) -> str:
    errors = f" error {found.error:.1e} beside torch's {found.torch_error:.1e}" if found.verdict == WRONG else ""
    return f"seed {found.task.seed}: {found.verdict}{errors} {found.said[:400]}\n    {found.task.net}"


def _shrink(task: Task, simulated: bool) -> int:
    """Prints smaller and smaller nets that fail with the verdict of this one."""

    def checked(net: Net) -> Found:
        return next(_run(iter([replace(task, net=net, timed=False, kernels=False)]), simulated, 1, 1))

    if simulated:
        worker = Worker(simulate, COMPILE_SECONDS)

        def checked(net: Net) -> Found:  # noqa: F811  (one process for all of them)
            one = replace(task, net=net, timed=False, kernels=False)
            try:
                return worker.run(one)
            except Lost as error:
                return Found(one, "compiler hangs or dies", str(error))

    found = checked(task.net)
    print(_line(found), flush=True)
    if found.verdict == RIGHT:
        return 0
    print(_line(shrink(found, checked)))
    return 1


def shrink(found: Found, checked: Callable[[Net], Found]) -> Found:
    """The smallest net that is reached by moves after each of which the verdict is still the same."""
    best, tried = found, {found.task.net}
    while True:
        for net in smaller(best.task.net):
            if net in tried or not is_net(net):
                continue
            tried.add(net)
            after = checked(net)
            if after.verdict == best.verdict:
                print(f"    smaller: {net}", flush=True)
                best = after
                break
        else:
            return best


if __name__ == "__main__":
    sys.exit(main())
