"""Checks compiled models on a GPU against torch's results made elsewhere, and times them.

    python bench/check_gpu_models.py make build/gpu --plain              # any machine, with torch
    python bench/check_gpu_models.py run build/gpu/*.kitsune             # a GPU, with numpy and cuda-core

`make` writes, for every small model in fp32 and bf16, NAME-DTYPE.kitsune and NAME-DTYPE.npz (inputs, and what
torch's eager mode makes of them on the CPU). `run` fills all GPU memory that a run will write with NaN
patterns first, compares every output, and prints a table; it exits 1 when one is wrong.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = {"f32": 1e-4, "bf16": 2e-2}  # norm of the error over the norm of torch's result


def main() -> int:
    """Runs a subcommand; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="compile the sample models and record torch's results")
    make.add_argument("folder", type=Path)
    make.add_argument("--target", default="sm_90a")
    make.add_argument("--plain", action="store_true", help="without pipelines: one kernel an operator")
    make.add_argument("--shape", default="auto", choices=("auto", "fused", "spatial"), help="of pipelines")
    make.add_argument("--models", nargs="*", help="names in examples/models; default: all small ones")
    run = commands.add_parser("run", help="check artifacts on this machine's GPU")
    run.add_argument("artifacts", type=Path, nargs="+")
    run.add_argument("--repeat", type=int, default=20, help="timed runs, of which the median is shown")
    options = parser.parse_args()
    if options.command == "make":
        return _make(options.folder, options.target, options.models, options.plain, options.shape)
    return _run(options.artifacts, options.repeat)


def _make(folder: Path, target: str, names: list[str] | None, plain: bool, shape: str) -> int:
    import torch

    sys.path.insert(0, str(ROOT))
    from examples.models import SMALL
    from kitsune_mlir import __version__
    from kitsune_mlir.runtime import artifact

    folder.mkdir(parents=True, exist_ok=True)
    for name in names or SMALL:
        for label, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            torch.manual_seed(0)
            model, args = SMALL[name](dtype)
            with torch.no_grad():
                wanted = model(*args)
            content = _plain_content(model, args, target) if plain else _content(model, args, target, shape)
            artifact.save(content, folder / f"{name}-{label}.kitsune", __version__)
            interface = content.interface
            tensors = {f"input_{i}": value for i, value in enumerate(interface.flat_inputs(args, {}))}
            tensors |= {f"wanted_{i}": value for i, value in enumerate(interface.flat_results(wanted))}
            np.savez(folder / f"{name}-{label}.npz", **{key: _numpy(value) for key, value in tensors.items()})
            print(f"{name}-{label}", file=sys.stderr)
    return 0


def _content(model: Any, args: Any, target: str, shape: str) -> Any:
    """What `kitsune_mlir.compile` puts in an artifact."""
    import kitsune_mlir
    from kitsune_mlir.runtime import artifact

    with tempfile.TemporaryDirectory() as folder:
        compiled = kitsune_mlir.compile(model, args, target=target, options={"place-stages": f"shape={shape}"})
        return artifact.load(compiled.save(Path(folder, "model.kitsune")))


def _plain_content(model: Any, args: Any, target: str) -> Any:
    """The same without the passes that make pipelines."""
    from kitsune_mlir import plan
    from kitsune_mlir.codegen import gpu
    from kitsune_mlir.frontend import import_model
    from kitsune_mlir.passes import pipeline
    from kitsune_mlir.planning import target as targets
    from kitsune_mlir.runtime.artifact import Content
    from kitsune_mlir.runtime.executable import Interface

    program = import_model(model, args)
    machine = targets.load(target)
    pipeline.run(program.module, [pipeline.make("prepare-linalg")])
    found = plan.describe(plan.partitioned(program.module, []), [], machine)
    pipeline.run(program.module, [pipeline.make("convert-linalg-to-gpu")])
    section = gpu.build(program.module, machine)
    interface = Interface(program.name, program.signature, program.arguments, program.outputs)
    return Content(interface, {machine.name: "gpu"}, {machine.name: section}, {machine.name: found})


def _numpy(tensor: Any) -> np.ndarray:
    """A torch tensor as numpy holds it: bfloat16 as its bits."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return tensor.contiguous().numpy()


def _run(artifacts: list[Path], repeat: int) -> int:
    from kitsune_mlir.runtime import artifact
    from kitsune_mlir.runtime.cuda import CudaDevice
    from kitsune_mlir.runtime.gpu import GpuRunner

    device = CudaDevice()
    print(f"{device.device.name}, {len(artifacts)} models")
    print(f"{'model':28} {'kernels':>7} {'pipelines':>9} {'error':>9} {'bound':>7} {'ms':>8}  verdict")
    failed = 0
    for path in artifacts:
        content = artifact.load(path)
        name = next(name for name, kind in content.kinds.items() if kind == "gpu")
        section, interface = content.sections[name], content.interface
        data = np.load(path.with_suffix(".npz"))
        inputs = [data[f"input_{i}"] for i in range(len(interface.inputs))]
        bound = BOUNDS[path.stem.rsplit("-", 1)[1]]
        error, ms, said = float("nan"), float("nan"), ""
        try:
            runner = GpuRunner(section.manifest, section.files, interface.constants(), Poisoned(device))
            args, kwargs = interface.nest(inputs)
            results = interface.flat_results(interface.call(runner, args, kwargs))
            error = max(_errors(results, interface.results, data), default=0.0)
            ms = _time(runner, inputs, device, repeat)
        except Exception as problem:  # a table of many models goes on
            said = f"{type(problem).__name__}: {problem}"
        good = error <= bound
        failed += not good
        kernels, pipelines = len(section.manifest["kernels"]), len(section.manifest["pipelines"])
        verdict = "right" if good else said or "WRONG"
        print(f"{path.stem:28} {kernels:7} {pipelines:9} {error:9.1e} {bound:7.0e} {ms:8.3f}  {verdict}", flush=True)
    return 1 if failed else 0


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
