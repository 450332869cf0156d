"""Checks compiled models and single operators on a GPU against torch's results on the CPU, and times the models.

    python bench/check_gpu_models.py make build/gpu --plain              # any machine, with torch
    python bench/check_gpu_models.py run build/gpu/*.kitsune             # a GPU, with numpy and cuda-core
    python bench/check_gpu_models.py operators --jobs 16                 # a GPU, with torch and torch-mlir

`make` writes, for every small model in fp32 and bf16, NAME-DTYPE.kitsune and NAME-DTYPE.npz (inputs, and what
torch's eager mode makes of them on the CPU). `run` compares every output, and prints a table. `operators` compiles
and runs the cases of bench/gpu_operators.py: `--only softmax` those with that in their names, `--compile-only` on a
machine without a GPU, `--stand-in` in the simulator, kitsune_mlir.tools.gpusim.

Compilation and runs are in processes of their own: one that dies, hangs or is left with a broken GPU context costs
one model, and is replaced. All GPU memory that a run will write is filled with NaN patterns first. Exits with 1 when
one is wrong, and says which.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from workers import Last, Lost, each

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
BOUNDS = {"f32": 1e-4, "bf16": 2e-2}  # norm of the error over the norm of torch's result
RUNNERS = 4  # processes that share the GPU
COMPILE_SECONDS, RUN_SECONDS = 300.0, 60.0  # after which a process is taken for hung


def main() -> int:
    """Runs a subcommand; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="compile the sample models and record torch's results")
    make.add_argument("folder", type=Path)
    make.add_argument("--shape", default="auto", choices=("auto", "spatial"), help="of pipelines")
    make.add_argument("--models", nargs="*", help="names in examples/models; default: all small ones")
    run = commands.add_parser("run", help="check artifacts on this machine's GPU")
    run.add_argument("artifacts", type=Path, nargs="+")
    run.add_argument("--repeat", type=int, default=20, help="timed runs, of which the median is shown")
    operators = commands.add_parser("operators", help="compile single operators and check them on this machine's GPU")
    operators.add_argument("--list", action="store_true", help="print the names of the cases, and do no more")
    operators.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="cases with one of these in their names"
    )
    where = operators.add_mutually_exclusive_group()
    where.add_argument("--compile-only", action="store_true", help="do not run them")
    where.add_argument("--stand-in", action="store_true", help="run them in the simulator")
    for command in (make, operators):
        command.add_argument("--target", default="sm_90a")
        command.add_argument("--plain", action="store_true", help="without pipelines: one kernel an operator")
        command.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="models compiled at once")
    options = parser.parse_args()
    if options.command == "make":
        return _make(options)
    if options.command == "run":
        return _run(options.artifacts, options.repeat)
    return _operators(options)


def _make(options: argparse.Namespace) -> int:
    from examples.models import SMALL

    options.folder.mkdir(parents=True, exist_ok=True)
    tasks = [(name, label) for name in options.models or SMALL for label in BOUNDS]
    compile_one = functools.partial(_make_one, options.folder, options.target, options.plain, options.shape)
    failed = []
    for task, problem in each(compile_one, tasks, options.jobs, COMPILE_SECONDS):
        name = "-".join(task)
        print(f"{name:28} {problem or 'compiled'}", file=sys.stderr, flush=True)
        failed += [name] if problem else []
    return _summary(len(tasks), failed, "compiled")


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gives what went wrong in place of raising it. After an error on the GPU its process is of no
    more use: whatever kernel failed, CUDA says so again at every call."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            if _device.cache_info().currsize:
                raise Last(text) from error
            return text

    return call


@_told
def _make_one(folder: Path, target: str, plain: bool, shape: str, task: tuple[str, str]) -> str:
    """Compiles a sample model and records torch's results; gives what went wrong."""
    import torch

    from examples.models import SMALL
    from kitsune_mlir import __version__
    from kitsune_mlir.runtime import artifact

    name, label = task
    torch.manual_seed(0)
    model, args = SMALL[name]({"f32": torch.float32, "bf16": torch.bfloat16}[label])
    with torch.no_grad():
        wanted = model(*args)
    content = _plain_content(model, args, target) if plain else _content(model, args, target, shape)
    artifact.save(content, folder / f"{name}-{label}.kitsune", __version__)
    interface = content.interface
    tensors = {f"input_{i}": value for i, value in enumerate(interface.flat_inputs(args, {}))}
    tensors |= {f"wanted_{i}": value for i, value in enumerate(interface.flat_results(wanted))}
    np.savez(folder / f"{name}-{label}.npz", **{key: _numpy(value) for key, value in tensors.items()})
    return ""


def _content(model: Any, args: Any, target: str, shape: str = "auto", dynamic_shapes: Any = None) -> Any:
    """What `kitsune_mlir.compile` puts in an artifact."""
    import kitsune_mlir
    from kitsune_mlir.runtime import artifact

    options = {"place-stages": f"shape={shape}"}
    with tempfile.TemporaryDirectory() as folder:
        compiled = kitsune_mlir.compile(model, args, target=target, dynamic_shapes=dynamic_shapes, options=options)
        return artifact.load(compiled.save(Path(folder, "model.kitsune")))


def _plain_content(model: Any, args: Any, target: str, dynamic_shapes: Any = None) -> Any:
    """The same without the passes that make pipelines."""
    return _plain(model, args, target, dynamic_shapes)[0]


def _plain(model: Any, args: Any, target: str, dynamic_shapes: Any = None) -> tuple[Any, Any]:
    """What an artifact holds, without pipelines, and the module that its code was generated from."""
    from kitsune_mlir import plan
    from kitsune_mlir.codegen import gpu
    from kitsune_mlir.frontend import import_model
    from kitsune_mlir.passes import pipeline
    from kitsune_mlir.planning import target as targets
    from kitsune_mlir.runtime.artifact import Content
    from kitsune_mlir.runtime.executable import Interface

    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    machine = targets.load(target)
    pipeline.run(program.module, [pipeline.make("prepare-linalg")])
    found = plan.describe(plan.partitioned(program.module, []), [], machine)
    pipeline.run(program.module, [pipeline.make("convert-linalg-to-gpu", "", target)])
    section = gpu.build(program.module, machine)
    interface = Interface(program.name, program.signature, program.arguments, program.outputs)
    content = Content(interface, {machine.name: "gpu"}, {machine.name: section}, {machine.name: found})
    return content, program.module


def _numpy(tensor: Any) -> np.ndarray:
    """A torch tensor as numpy holds it: bfloat16 as its bits."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return tensor.contiguous().numpy()


def _run(artifacts: list[Path], repeat: int) -> int:
    print(f"{'model':28} {'kernels':>7} {'pipelines':>9} {'error':>9} {'bound':>7} {'ms':>8}  verdict")
    failed = []
    for path, found in each(functools.partial(_run_one, repeat), artifacts, 1, RUN_SECONDS):  # alone: it is timed
        nothing = (0, 0, float("nan"), float("nan"), float("nan"))
        kernels, pipelines, error, bound, ms = found if isinstance(found, tuple) else nothing
        good = error <= bound
        failed += [] if good else [path.stem]
        verdict = "right" if good else "WRONG" if isinstance(found, tuple) else found
        print(f"{path.stem:28} {kernels:7} {pipelines:9} {error:9.1e} {bound:7.0e} {ms:8.3f}  {verdict}", flush=True)
    return _summary(len(artifacts), failed)


@_told
def _run_one(repeat: int, path: Path) -> tuple[int, int, float, float, float]:
    """Numbers of kernels and pipelines, error and its bound, milliseconds."""
    from kitsune_mlir.runtime import artifact
    from kitsune_mlir.runtime.gpu import GpuRunner

    content = artifact.load(path)
    name = next(name for name, kind in content.kinds.items() if kind == "gpu")
    section, interface = content.sections[name], content.interface
    data = np.load(path.with_suffix(".npz"))
    inputs = [data[f"input_{i}"] for i in range(len(interface.inputs))]
    device = _device()
    runner = GpuRunner(section.manifest, section.files, interface.constants(), Poisoned(device))
    args, kwargs = interface.nest(inputs)
    results = interface.flat_results(interface.call(runner, args, kwargs))
    error = max(_errors(results, interface.results, data), default=0.0)
    bound = BOUNDS[path.stem.rsplit("-", 1)[1]]
    ms = _time(runner, inputs, device, repeat)
    return len(section.manifest["kernels"]), len(section.manifest["pipelines"]), error, bound, ms


@functools.cache
def _device() -> Any:
    """The GPU, whose context this process has."""
    from kitsune_mlir.runtime.cuda import CudaDevice

    return CudaDevice()


def _summary(count: int, failed: list[str], good: str = "right") -> int:
    """Prints which failed; gives the exit code."""
    print(f"{count - len(failed)} of {count} {good}" + "".join(f"\n  failed: {name}" for name in sorted(failed)))
    return 1 if failed else 0


def _operators(options: argparse.Namespace) -> int:
    from bench import gpu_operators

    names = [name for name, _ in gpu_operators.chosen(options.only)]
    if options.list:
        print("\n".join(names))
        return 0
    if not names:
        print(f"no case has {' or '.join(options.only)} in its name", file=sys.stderr)
        return 1
    start = time.perf_counter()
    failed: list[str] = []

    def right(results: Iterable[tuple[str, str | Lost]]) -> list[str]:
        """The cases of which nothing is said; what is said of others is printed."""
        found = []
        for name, said in results:
            (failed if str(said) else found).append(name)
            if str(said):
                print(f"{name:36} {said}", flush=True)
        return found

    with tempfile.TemporaryDirectory() as folder:
        build = functools.partial(_build_operator, folder, options.target, options.plain, options.stand_in)
        built = right(each(build, names, options.jobs, COMPILE_SECONDS))
        print(f"compiled {len(built)} of {len(names)} in {time.perf_counter() - start:.0f} s", flush=True)
        if not options.compile_only and not options.stand_in:
            right(each(functools.partial(_run_operator, folder), built, min(RUNNERS, options.jobs), RUN_SECONDS))
    print(f"{time.perf_counter() - start:.0f} s")
    return _summary(len(names), failed, "compiled" if options.compile_only else "right")


@_told
def _build_operator(folder: str, target: str, plain: bool, stand_in: bool, name: str) -> str:
    """Compiles a case into an artifact, or runs it where the artifact would need a GPU; gives what is wrong."""
    import torch

    from bench import gpu_operators
    from kitsune_mlir import __version__
    from kitsune_mlir.runtime import artifact

    torch.set_num_threads(1)
    case = gpu_operators.CASES[name]
    given = (case.model(), case.args, target)
    if stand_in:
        from kitsune_mlir.tools.gpusim.device import SimulatedDevice

        content, module = _plain(*given, dynamic_shapes=case.dynamic_shapes())
        return _differences(case, content, SimulatedDevice(module))
    make = _plain_content if plain else _content
    artifact.save(make(*given, dynamic_shapes=case.dynamic_shapes()), Path(folder, _file(name)), __version__)
    return ""


@_told
def _run_operator(folder: str, name: str) -> str:
    """Runs a compiled case on the GPU; gives what is wrong."""
    from bench import gpu_operators
    from kitsune_mlir.runtime import artifact

    content = artifact.load(Path(folder, _file(name)))
    return _differences(gpu_operators.CASES[name], content, Poisoned(_device()))


def _file(name: str) -> str:
    return f"{name.replace('/', '+')}.kitsune"


def _differences(case: Any, content: Any, device: Any) -> str:
    """How a case's results differ from torch's, the first inputs twice: a second run finds what the first left."""
    from bench.operator_cases import wrong
    from kitsune_mlir.runtime.gpu import GpuRunner

    (section,), interface = content.sections.values(), content.interface
    runner = GpuRunner(section.manifest, section.files, interface.constants(), device)
    found = []
    for args in (case.args, case.args, *case.others):
        results = interface.flat_results(interface.call(runner, args, {}))
        wanted = case.wanted(args)
        if len(results) != len(wanted):
            return f"{len(results)} results, wanted {len(wanted)}"
        for i, (a, b, dtype) in enumerate(zip(results, wanted, case.types(), strict=True)):
            if difference := wrong(a, b, dtype, case.looser):
                found.append(f"result {i} of {_described(args)}: {difference}")
    return "; ".join(dict.fromkeys(found))[:400]


def _described(args: Any) -> str:
    return ", ".join(f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in args[:4])


def _errors(results: list[np.ndarray], specs: list[Any], data: Any) -> list[float]:
    """Relative error of each result; infinite when one has a NaN that torch's has not."""
    errors = []
    for i, (array, spec) in enumerate(zip(results, specs, strict=True)):
        a, b = _double(array, spec.dtype), _double(data[f"wanted_{i}"], spec.dtype)
        if a.shape != b.shape or np.any(np.isnan(a) & ~np.isnan(b)):
            errors.append(float("inf"))
        else:
            errors.append(float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)))
    return errors


def _double(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _time(runner: Any, inputs: list[np.ndarray], device: Any, repeat: int) -> float:
    """Milliseconds of a run with inputs on the GPU, host included: the median of several, each waited for."""
    resident = runner.upload(inputs)
    times = []
    for _ in range(repeat + 3):
        start = time.perf_counter()
        runner.launch(resident)
        device.device.sync()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:]) * 1e3


class Poisoned:
    """A device that fills what it allocates with NaN patterns."""

    def __init__(self, device: Any):
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def allocate(self, nbytes: int, stream: int) -> Any:
        memory = self._device.allocate(nbytes, stream)
        self._device.write(memory.pointer, np.full(nbytes, 0xFF, np.uint8), stream)
        return memory


if __name__ == "__main__":
    sys.exit(main())
