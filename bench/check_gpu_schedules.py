"""Random kernels at the schedule level, proven, lowered and run: nothing may hang, die or be wrong.

    python bench/check_gpu_schedules.py --seeds 0:300               # on a GPU
    python bench/check_gpu_schedules.py --seeds 0:20 --simulate     # without one: in the simulator
    python bench/check_gpu_schedules.py --target sm_80              # those of chips without warpgroup products

A kernel is that of one seed (kitsune_mlir/bench/random_kernels.py). Of every third seed it is a mutant, in which an
operation on slots is forgotten or stands elsewhere. What the proof accepts runs in the interpreter, which must find no
fault, then twice on the device, where its numbers must be the interpreter's; what the proof refuses must not be
lowered. A child that takes too long or dies is replaced. Exits 1 when a seed fails.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from workers import Lost, each  # noqa: E402

from kitsune_mlir import mlir  # noqa: E402
from kitsune_mlir.bench.random_kernels import RandomKernel, draw, mutants  # noqa: E402
from kitsune_mlir.codegen import gpu  # noqa: E402
from kitsune_mlir.dialects import schedule as dialect  # noqa: E402
from kitsune_mlir.errors import KitsuneError  # noqa: E402
from kitsune_mlir.passes import pipeline  # noqa: E402
from kitsune_mlir.passes.schedule_events import Reading  # noqa: E402
from kitsune_mlir.planning import schedule_proof  # noqa: E402
from kitsune_mlir.planning import target as targets  # noqa: E402
from kitsune_mlir.planning.schedule import Refused  # noqa: E402
from kitsune_mlir.runtime.gpu import GpuRunner  # noqa: E402
from kitsune_mlir.schedule import Program, ScheduleFault  # noqa: E402

SECONDS = 120.0  # for one kernel
MUTANT_EVERY, MOST_TRIED = 3, 200
RUNS = 2  # the second finds what the first left
RIGHT, REFUSED = "right", "refused"
DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


@dataclass(frozen=True)
class Task:
    """A seed, whether its kernel is a mutant, what it is for, and where it runs. `simulated` kernels have fewer
    tiles."""

    seed: int
    simulated: bool
    target: str = "sm_90a"

    @property
    def is_mutant(self) -> bool:
        return self.seed % MUTANT_EVERY == 0


def main() -> int:
    """Runs what was asked for; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:300", help="FIRST:END, or one number")
    parser.add_argument("--simulate", action="store_true", help="run kernels in the simulator")
    parser.add_argument("--target", default="sm_90a", help="what kernels are for; a later GPU runs those of sm_80, too")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--show", action="store_true", help="print the kernels")
    options = parser.parse_args()
    first, _, end = options.seeds.partition(":")
    tasks = [Task(seed, options.simulate, options.target) for seed in range(int(first), int(end or int(first) + 1))]
    if options.show:
        for task in tasks:
            print(text_of(task)[1])
    start, found = time.perf_counter(), []
    for task, result in each(check, tasks, options.jobs, SECONDS):
        found.append("hangs or dies" if isinstance(result, Lost) else result[0])
        if found[-1] not in (RIGHT, REFUSED):
            print(f"seed {task.seed}: {found[-1]} {result if isinstance(result, Lost) else result[1]}", flush=True)
    counts = Counter(found)
    print(f"{len(found)} kernels in {time.perf_counter() - start:.0f} s: ", end="")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(counts[RIGHT] + counts[REFUSED] < len(found))


def text_of(task: Task) -> tuple[RandomKernel, str]:
    """The kernel of a task, and its text or its mutant's."""
    kernel = draw(task.seed, 3 if task.simulated else 8, task.target)
    if task.is_mutant:
        for text in itertools.islice(mutants(kernel), MOST_TRIED):
            if parsed(text) is not None:
                return kernel, text
    return kernel, kernel.text


def parsed(text: str) -> Any:
    """The module of a text; None where it is no valid IR."""
    try:
        return mlir.parse(text, mlir.context(), "kernel.mlir")
    except (KitsuneError, mlir.ir.MLIRError, ValueError):
        return None


def check(task: Task) -> tuple[str, str]:
    """A child's work: a verdict, RIGHT, REFUSED or what is wrong in a word or two, and more of it."""
    kernel, text = text_of(task)
    module = parsed(text)
    if module is None:
        return "no valid IR", ""
    (scheduled,) = dialect.kernels(module)
    path = target_path(kernel.sms, task.target)
    fault = refused(scheduled, path)
    arguments = inputs_of(kernel)
    if fault is not None:
        if not task.is_mutant and "cycle of waits" not in fault:
            return "refused for nothing", fault
        return ("lowered though refused", fault) if is_lowered(module, path) else (REFUSED, fault)
    try:
        wanted = [Program(scheduled).run(arguments, 2, seed, kernel.outputs) for seed in range(2)]
    except ScheduleFault as found:
        return "proven though faulty", str(found)
    types = [element_of(result) for result in scheduled.result_ops]
    for name in ("convert-kitsune-to-gpu", "convert-linalg-to-gpu"):
        pipeline.run(module, [pipeline.make(name, "", path)])
    section = gpu.build(module, targets.load(path))
    device = simulated(module, task.seed) if task.simulated else None
    runner = GpuRunner(section.manifest, section.files, [None] * len(arguments), device)
    try:
        results = [runner.run([stored(array, element) for array, element in arguments_of(kernel)]) for _ in range(RUNS)]
    except KitsuneError as error:
        return type(error).__name__, str(error)[:500]
    for found, right in itertools.product(results, wanted):
        for number, (a, b, element) in enumerate(zip(found, right, types, strict=True)):
            a = a.view(DTYPES[element]).astype(np.float32)
            if a.shape != b.shape or not np.array_equal(a, b, equal_nan=True):
                bad = np.argwhere(~((a == b) | (np.isnan(a) & np.isnan(b))))
                return "wrong", f"output {number} at {bad[0].tolist()} and {len(bad) - 1} other places"
    return RIGHT, ""


def simulated(module: Any, seed: int) -> Any:
    from kitsune_mlir.tools.gpusim.device import SimulatedDevice

    return SimulatedDevice(module, seed)


def refused(kernel: Any, path: str) -> str | None:
    """Why the proof refuses a kernel; None where it does not."""
    try:
        faults = schedule_proof.verify(Reading(kernel).schedule(), targets.load(path))
    except Refused as error:
        return str(error.fault)
    return str(faults[0]) if faults else None


def is_lowered(module: Any, path: str) -> bool:
    try:
        pipeline.run(module, [pipeline.make("convert-kitsune-to-gpu", "", path)])
    except mlir.ir.MLIRError:
        return False
    return True


def arguments_of(kernel: RandomKernel) -> Iterator[tuple[np.ndarray, str]]:
    """Small whole numbers, f32, and the types in which they are stored."""
    rng = np.random.default_rng(kernel.seed)
    for shape, element in kernel.inputs:
        yield rng.integers(-3, 4, shape).astype(np.float32), element


def inputs_of(kernel: RandomKernel) -> list[np.ndarray]:
    return [array for array, _ in arguments_of(kernel)]


def stored(array: np.ndarray, element: str) -> np.ndarray:
    """An array as the device has it: bf16 as its bits."""
    array = array.astype(DTYPES[element])
    return array.view(np.uint16) if element == "bf16" else array


def element_of(result: Any) -> str:
    return str(mlir.ir.RankedTensorType(result.results[0].type).element_type)


@cache
def target_path(sms: int, name: str = "sm_90a") -> str:
    """The path of a description of a GPU of so many SMs: a small one is gone round more often."""
    return targets.load(name).override(name="small", sms=sms).save(Path(tempfile.mkdtemp(), "target.json"))


if __name__ == "__main__":
    sys.exit(main())
