"""kitsune run: runs a model or an artifact once or more, and compares it with torch when asked."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kitsune_mlir.errors import UserError

from . import inputs as input_files
from .console import (
    MODEL_HELP,
    add_model_arguments,
    ending_at_interrupts,
    file_name,
    natural,
    positive,
    print_json,
    progress,
    refuse_for_artifact,
)

# Largest relative error (2-norm) that counts as agreement, by element type; the widest output type decides.
TOLERANCE = {"bf16": 2e-2, "f16": 2e-3, "f32": 1e-4, "f64": 1e-4}
TF32_TOLERANCE = TOLERANCE | {"f32": 1e-3}  # where a plan says that f32 products are not of the highest precision

SIMULATED_TARGET = "sm_90a"  # by default
MANY_ROWS = 1024  # in the simulator, which takes seconds for as many


def add(subparsers: Any) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "run", help="run a model or an artifact, which is a program: only one that you trust"
    )
    parser.add_argument("model", metavar="ARTIFACT|MODEL", help=f"a .kitsune file, or {MODEL_HELP}")
    parser.add_argument("--target", metavar="NAME|FILE", help="where to run (default: cpu; an artifact's first fit)")
    said = f"run a MODEL's GPU kernels in the simulator, without a GPU (default target: {SIMULATED_TARGET}), and look"
    parser.add_argument("--simulate", action="store_true", help=f"{said} for races, deadlocks and bad accesses: slow")
    parser.add_argument("--digest", metavar="SHA256", help="of the ARTIFACT, as `kitsune report` prints it")
    parser.add_argument(
        "--input", type=file_name, metavar="FILE", help="inputs by name, .npz or .safetensors; else random"
    )
    parser.add_argument("--rows", type=positive, default=1024, help="size of dynamic dimensions of random inputs")
    parser.add_argument("--seed", type=natural, default=0, help="for random inputs, and of the simulator's order")
    parser.add_argument("--repeat", type=positive, default=1, metavar="N", help="time N calls, give the median")
    parser.add_argument("--threads", type=positive, metavar="N", help="of the CPU target (default: as planned)")
    parser.add_argument("--compare", choices=("torch",), help="compare with torch; exit 1 where they disagree")
    parser.add_argument("--save-output", type=file_name, metavar="FILE.npz", help="write the outputs by name")
    add_model_arguments(parser)
    parser.set_defaults(run=run)
    return parser


@dataclass
class Subject:
    """What runs: the callable, how to call it, and torch's own when it can be had."""

    model: Any  # a Loaded
    examples: list[Any] | None = None  # the inputs that the model's author gave
    reference: Callable[..., Any] | None = None


def run(options: argparse.Namespace) -> int:
    subject = _subject(options)
    subject.model.schedule(threads=options.threads, deterministic=options.deterministic)
    interface = subject.model.interface
    if options.input:
        given = input_files.read(options.input, interface.inputs)
    elif subject.examples is not None:
        given = subject.examples
    else:
        given = input_files.random(interface.inputs, options.rows, options.seed)
    if options.simulate:
        _warn_of_many_rows(given)
    args, kwargs = interface.nest(given)
    seconds = []
    for _ in range(options.repeat):
        start = time.perf_counter()
        result = subject.model(*args, **kwargs)
        seconds.append(time.perf_counter() - start)
    outputs = interface.flat_results(result)
    summary: dict[str, Any] = {
        "model": options.model,
        "target": subject.model.target,
        **_time(statistics.median(seconds), options.simulate),
        "inputs": [_describe(spec.name, spec.dtype, value) for spec, value in zip(interface.inputs, given)],
        "outputs": [_describe(spec.name, spec.dtype, value) for spec, value in zip(interface.results, outputs)],
    }
    agrees = _compare(summary, subject, args, kwargs, interface, outputs) if options.compare else True
    if options.save_output:
        input_files.write(options.save_output, interface.results, outputs)
    print_json(summary) if options.json else _print(summary)
    return 0 if agrees else 1


def _subject(options: argparse.Namespace) -> Subject:
    if options.model.endswith(".kitsune"):
        if options.simulate:
            said = "--simulate executes the kernels' IR, which an artifact does not hold"
            raise UserError(f"{said}: give it the model that {options.model} was made from")
        if options.compare:
            raise UserError("an artifact does not hold the torch model: give --compare the model it was made from")
        from kitsune_mlir.loaded import load

        refuse_for_artifact(options.model, dtype=options.dtype, matmul_precision=options.matmul_precision)
        loaded = load(options.model, digest=options.digest)
        if options.target:
            loaded.target = options.target
        return Subject(loaded)
    if options.digest is not None:
        raise UserError(f"--digest is for an artifact, and {options.model} is a model")
    return _simulated(options) if options.simulate else _compile(options)


def _simulated(options: argparse.Namespace) -> Subject:
    """The model with its GPU kernels in the simulator."""
    if options.threads:
        raise UserError("--threads is for the CPU target, --simulate is for a GPU's kernels")
    from kitsune_mlir.planning import target as targets

    options.target = options.target or SIMULATED_TARGET
    if targets.load(options.target).kind != "gpu":
        raise UserError(f"--simulate is for a GPU's kernels, and the target {options.target} is no GPU")
    with ending_at_interrupts():
        from kitsune_mlir.tools.gpusim import Simulation

    subject = _compile(options)
    return replace(subject, model=Simulation(subject.model, seed=options.seed))


def _warn_of_many_rows(given: list[Any]) -> None:
    rows = max((value.shape[0] for value in given if len(value.shape)), default=0)
    if rows > MANY_ROWS:
        said = f"the simulator takes seconds for {MANY_ROWS} rows of a few layers, and here are {rows}"
        advice = "fewer show the same faults most often (--input, or --rows where they are dynamic)"
        print(f"kitsune: note: {said}: {advice}", file=sys.stderr)


def _time(seconds: float, simulated: bool) -> dict[str, Any]:
    """The time of a call; in the simulator it says nothing about a GPU."""
    if simulated:
        return {"simulated": True, "seconds_simulating": round(seconds, 3)}
    return {"milliseconds": round(seconds * 1e3, 3)}


def _compile(options: argparse.Namespace) -> Subject:
    with ending_at_interrupts():
        from kitsune_mlir.compiler import compile

    settings = {
        "target": options.target or "cpu",
        "matmul_precision": options.matmul_precision,
        "deterministic": options.deterministic or None,
    }
    with progress(f"compiling {options.model}") as show:
        if ":" not in options.model:
            model = compile(options.model, dtype=options.dtype, progress=show, **settings)
            return Subject(model, None, _exported(options.model) if options.compare else None)
        from kitsune_mlir.frontend.model_spec import load_model

        module, example, shapes = load_model(options.model)
        if options.dtype:
            module, example = _cast(module, example, options.dtype)
        model = compile(module, example, dynamic_shapes=shapes, progress=show, **settings)
    return Subject(model, model.interface.flat_inputs(example, {}), module)


def _cast(module: Any, example: Any, dtype: str) -> tuple[Any, Any]:
    """The torch module and its floating-point example inputs in another type."""
    import torch

    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]

    def cast(leaf: Any) -> Any:
        return leaf.to(kind) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return module.to(kind), torch.utils._pytree.tree_map(cast, example)


def _exported(path: str) -> Callable[..., Any]:
    if not path.endswith(".pt2"):
        raise UserError(f"--compare torch wants a model that torch runs, a .pt2 or module:function; {path} is neither")
    import torch

    return torch.export.load(path).module()


def _compare(
    summary: dict[str, Any], subject: Subject, args: Any, kwargs: Any, interface: Any, outputs: list[Any]
) -> bool:
    import torch

    assert subject.reference is not None
    tensors = torch.utils._pytree.tree_map(_as_torch, (args, kwargs))
    with torch.no_grad():
        wanted = interface.flat_results(subject.reference(*tensors[0], **tensors[1]))
    agrees, tolerance = True, TF32_TOLERANCE if "matmul_precision" in subject.model.plan else TOLERANCE
    for described, spec, ours, theirs in zip(summary["outputs"], interface.results, outputs, wanted):
        error = relative_error(_as_f64(ours), _as_f64(theirs))
        described["relative_error"] = error
        agrees = agrees and error <= tolerance.get(spec.dtype, 0.0)
    summary["agrees_with_torch"] = agrees
    return agrees


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """2-norm of the difference over 2-norm of the reference; NaN or infinity in one only counts as 1."""
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    difference = np.where(same, 0.0, ours - theirs)
    if not np.isfinite(difference).all():
        return 1.0
    scale = float(np.linalg.norm(np.where(np.isfinite(theirs), theirs, 0.0)))
    return float(np.linalg.norm(difference)) / scale if scale else float(np.linalg.norm(difference))


def _as_torch(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray):
        if value.dtype.name == "bfloat16":
            return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(value)
    return value


def _as_f64(value: Any) -> np.ndarray:
    return np.asarray(value.double().cpu() if hasattr(value, "double") else value.astype(np.float64))


def _describe(name: str, dtype: str, value: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(value.shape)}


def _print(summary: dict[str, Any]) -> None:
    if "simulated" in summary:
        took = f"simulated in {summary['seconds_simulating']:g} s a call, which is no time of a GPU"
        print(f"{summary['model']} on {summary['target']}: no fault found; {took}")
    else:
        print(f"{summary['model']} on {summary['target']}: {summary['milliseconds']:g} ms a call")
    for kind in ("inputs", "outputs"):
        for tensor in summary[kind]:
            line = f"  {kind[:-1]:<6} {tensor['name']}: {tensor['dtype']}{tensor['shape']}"
            error = tensor.get("relative_error")
            print(line if error is None else f"{line}  relative error to torch {error:.2e}")
    if "agrees_with_torch" in summary:
        print("agrees with torch" if summary["agrees_with_torch"] else "DISAGREES with torch")
