"""Compiles every model of the zoo (kitsune_mlir/bench/zoo.py), or of another suite, for a GPU that need not be there.

    python bench/check_zoo.py                       # the zoo at its small sizes, for sm_90a; a line for each failure
    python bench/check_zoo.py --target sm_80        # for another
    python bench/check_zoo.py --suite everyday      # another suite
    python bench/check_zoo.py zoo/geglu-small everyday/vgg

A model whose large products run without the tensor cores of the target fails too, but for those of few rows or columns
that are faster as sums over rows (`kitsune_mlir/bench/scalar_products.py`). `kitsune bench --suite NAME` times
them. Exits 1 when one fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from bench.workers import Lost, each  # noqa: E402
from kitsune_mlir.bench import cases  # noqa: E402
from kitsune_mlir.planning import target as targets  # noqa: E402


@dataclass(frozen=True)
class Task:
    """A case, and what it is compiled for."""

    case: str
    target: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="CASE", help="as `kitsune bench` takes them")
    parser.add_argument("--suite", choices=cases.SUITES, default="zoo-small", help="where no case is named")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0, help="for one model")
    parser.add_argument("--verbose", action="store_true", help="a line for each success too")
    options = parser.parse_args()
    tasks = [Task(name, options.target) for name in options.models or cases.suite(options.suite)]
    failed = 0
    for task, said in each(compile_case, tasks, options.jobs, options.seconds):
        bad = isinstance(said, Lost) or said.startswith("fails")
        failed += bad
        if bad or options.verbose:
            print(f"{task.case}: {said}", flush=True)
    print(f"{len(tasks)} models, {failed} failed")
    return int(failed > 0)


def compile_case(task: Task) -> str:
    """A child's work: what became of it, in a line."""
    import torch

    import kitsune_mlir
    from kitsune_mlir.bench.scalar_products import scalar_products
    from kitsune_mlir.bench.sides import matmul_precision

    torch.set_num_threads(1)
    start = time.perf_counter()
    try:
        with matmul_precision(None):  # as it is once this is done
            case = cases.find(task.case, None)
            module, args, shapes = case.make()
            compiled = kitsune_mlir.compile(
                module, args, target=task.target, dynamic_shapes=shapes, options={**case.form}
            )
    except Exception as error:
        return f"fails: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
    if targets.load(task.target).products != "fma" and (scalar := scalar_products(compiled, task.target)):
        return f"fails: without tensor cores: {'; '.join(scalar)}"
    plan = compiled.plan
    operators = plan["operators"]
    return (
        f"{operators['pipelined']} of {operators['total']} operators in {len(plan['pipelines'])} pipelines,"
        f" {len(plan['kernels'])} kernels, {time.perf_counter() - start:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
