"""Training steps beside torch, forward and backward pass: ours, eager mode and torch.compile, timed one at a time.

    python bench/training.py nerf-64k dlrm-2k mgn graphcast --jobs 1
    python bench/training.py --suite everyday --jobs 8 --json training.jsonl

A step computes the gradients of a model's parameters, or of its inputs where it has none, for given gradients of its
results; the optimizer is not part of it. Ours is `torch.compile(model, backend="kitsune")`, whose two programs are
captured in one CUDA graph as torch's ways are; all of a model must be compiled by it. Nothing is dropped out.
Gradients are compared with those of eager mode in f32: ours must not be farther from them, in the norm of a tensor,
than twice what torch's own are in the model's type, and a rounding. Exits 1 when one is, or has not run.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from workers import Lost, each  # noqa: E402

from kitsune_mlir.bench import cases  # noqa: E402

SECONDS = 280.0
ROUNDS, WARM_UP = 15, 3
ROUNDING = {"torch.bfloat16": 1e-2, "torch.float16": 2e-3}  # of all else 1e-4


@dataclass(frozen=True)
class Task:
    """A case and the folder of the lock that is held while it is timed."""

    case: str
    folder: str


class Step:
    """A training step of a module: gradients of what is trained, and the results."""

    def __init__(self, module: Any, call: Callable[..., Any], args: Any):
        import torch
        from torch.utils._pytree import tree_leaves, tree_map

        def leaf(value: Any) -> Any:
            given = isinstance(value, torch.Tensor) and value.is_floating_point() and not own
            return value.detach().clone().requires_grad_() if given else value

        own = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.call, self.args = call, tree_map(leaf, args)
        self.trained = own or [
            value for value in tree_leaves(self.args) if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        self.tangents: list[Any] | None = None

    def __call__(self) -> list[Any]:
        import torch
        from torch.utils._pytree import tree_leaves

        for tensor in self.trained:
            tensor.grad = None
        leaves = tree_leaves(self.call(*self.args))
        results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if self.tangents is None:
            generator = torch.Generator(results[0].device).manual_seed(5)
            self.tangents = [torch.randn(r.shape, generator=generator, device=r.device).to(r.dtype) for r in results]
        torch.autograd.backward(results, self.tangents)
        return [result.detach() for result in results] + [tensor.grad for tensor in self.trained]


def time_case(task: Task) -> dict[str, Any]:
    """A child's work: milliseconds of each side, errors and seconds to compile, or {said}."""
    import torch
    from torch.utils._pytree import tree_map

    from kitsune_mlir.bench.device import Gpu
    from kitsune_mlir.bench.measure import Settings, make
    from kitsune_mlir.bench.sides import matmul_precision

    torch.set_num_threads(1)
    torch.compiler.reset()
    warnings.filterwarnings("error", message="kitsune backend")
    gpu = Gpu()
    exact_products = "highest" if "tf32" not in task.case else "high"
    torch.set_float32_matmul_precision(exact_products)
    torch.backends.cudnn.allow_tf32 = exact_products == "high"
    module, args = make(cases.find(task.case, None), Settings())[:2]
    if not isinstance(module, torch.nn.Module):
        return {"said": "no module"}
    module = module.cuda().train()
    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.dropout._DropoutNd):
            layer.p = 0.0
        if isinstance(layer, torch.nn.MultiheadAttention | torch.nn.RNNBase):
            layer.dropout = 0.0
    args = tree_map(lambda leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf, args)
    dtype = next((str(p.dtype) for p in module.parameters()), "torch.float32")
    found: dict[str, Any] = {}
    eager = Step(module, module, args)
    try:
        plain = eager()
    except Exception as error:
        return {"said": f"torch's eager mode: {type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    began = time.monotonic()
    torch._dynamo.config.suppress_errors = False
    ours = Step(module, torch.compile(module, backend="kitsune", dynamic=False), args)
    ours.tangents = eager.tangents
    held = torch.full((256 << 20,), float("nan"), device="cuda")  # results are made where this was
    del held
    try:
        mine = ours()
        torch.cuda.synchronize()
    except Exception as error:
        return {"said": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    found["seconds"] = time.monotonic() - began
    wide = copy.deepcopy(module).float()
    exact = Step(wide, wide, tree_map(lambda a: a.float() if _is_real(a) else a, args))
    exact.tangents = [tangent.float() for tangent in eager.tangents or []]
    with matmul_precision("highest"):
        torch.backends.cudnn.allow_tf32 = False
        errors = _errors(mine, plain, exact())
    del wide, exact
    found["error"], found["torch_error"], worst, which = errors
    bound = 1e-2 if exact_products == "high" else ROUNDING.get(dtype, 1e-4)
    if worst > 2.0 and found["error"] > bound:
        names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        found["wrong"] = f"{worst:.1f} times torch's: {(['a result'] * (len(mine) - len(names)) + names)[which]}"
    torch.cuda.empty_cache()
    fused = Step(module, torch.compile(module, dynamic=False), args)
    fused.tangents = eager.tangents
    with Path(task.folder, "lock").open("w") as lock:
        try:
            fused()
        except Exception as error:
            found["torch"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            fused = None
        fcntl.flock(lock, fcntl.LOCK_EX)
        calls: dict[str, Any] = {}
        for name, step in (("eager", eager), ("compiled", fused), ("ours", ours)):
            if step is None:
                continue
            try:
                calls[name] = gpu.capture(lambda step=step: [step() for _ in range(WARM_UP)], step)
            except Exception as error:
                if name == "ours":
                    return found | {"said": f"capture: {_first(error)}"}
                torch.cuda.synchronize()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(gpu.time(call, cold=False))
    return found | {name: min(taken) for name, taken in times.items()}


def _first(error: BaseException) -> str:
    """What went wrong first, of what one error after another was raised for."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _is_real(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _errors(ours: list[Any], plain: list[Any], exact: list[Any]) -> tuple[float, float, float, int]:
    """The largest relative distances of ours and of torch's, the largest of their quotients where ours is no rounding,
    and which tensor has it; numbers that ought to be nothing beside the others are measured by these."""
    largest = max(float(e.double().norm() / max(e.numel(), 1) ** 0.5) for e in exact)
    errors = []
    for mine, other, wanted in zip(ours, plain, exact, strict=True):
        wanted = wanted.double()
        scale = float(wanted.norm()) + 1e-4 * largest * wanted.numel() ** 0.5 + 1e-30
        errors.append(tuple(float((each.double() - wanted).norm()) / scale for each in (mine, other)))
    quotients = [0.0 if mine < 1e-5 else mine / (other + 1e-6) for mine, other in errors]
    worst = max(quotients)
    return max(e[0] for e in errors), max(e[1] for e in errors), worst, quotients.index(worst)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="as `kitsune bench` takes them")
    parser.add_argument("--suite", action="append", default=[], choices=cases.SUITES)
    parser.add_argument("--jobs", type=int, default=2, help="processes that compile")
    parser.add_argument("--json", type=Path, help="writes a line a case")
    options = parser.parse_args()
    names = list(dict.fromkeys([*options.cases, *(name for suite in options.suite for name in cases.suite(suite))]))
    everything, failed = [], 0
    file = options.json.open("w") if options.json else None
    with tempfile.TemporaryDirectory() as folder:
        for task, found in each(time_case, iter([Task(name, folder) for name in names]), options.jobs, SECONDS):
            result = {"case": task.case, **({"said": str(found)} if isinstance(found, Lost) else found)}
            everything.append(result)
            failed += "said" in result or "wrong" in result
            if file:
                file.write(json.dumps(result) + "\n")
                file.flush()
            _show(result)
    timed = [one for one in everything if "ours" in one and ("eager" in one or "compiled" in one)]
    ratios = [min(one.get("eager", 1e9), one.get("compiled", 1e9)) / one["ours"] for one in timed]
    if ratios:
        print(f"{len(timed)} timed: {statistics.geometric_mean(ratios):.2f}, median {statistics.median(ratios):.2f}")
    return int(failed > 0)


def _show(one: dict[str, Any]) -> None:
    times = ", ".join(f"{side} {one[side]:.4f}" for side in ("ours", "eager", "compiled") if side in one)
    said = "".join(f" {name}: {one[name]}" for name in ("said", "torch", "wrong") if name in one)
    errors = f"error {one['error']:.1e} torch's {one['torch_error']:.1e}" if "error" in one else ""
    print(f"{one['case']}: {times} {errors}{said} ({one.get('seconds', 0):.0f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
