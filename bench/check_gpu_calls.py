"""Checks how compiled models are called on a GPU: sizes, streams, graphs, torch.compile, weights there.

    python bench/check_gpu_calls.py        # needs a GPU, torch, torch-mlir and cuda-core

Every result is compared with float64 on fresh random inputs. Exits 1 when one is wrong.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import kitsune_mlir
from examples.models.nerf import nerf
from kitsune_mlir.errors import UserError

BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
failures: list[str] = []


def check(name: str, found: torch.Tensor, wanted: torch.Tensor, bound: float) -> None:
    """Prints the relative error (Frobenius) and remembers a failure; NaN fails."""
    norm = wanted.double().norm().item()
    error = (found.double() - wanted.double()).norm().item() / norm if norm else float(found.numel() and found.norm())
    good = error <= bound and found.shape == wanted.shape
    failures.extend([] if good else [name])
    print(f"{name:58} {error:9.1e}  {'right' if good else 'WRONG'}", flush=True)


def results(value: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def main() -> int:
    """Runs every check; gives the exit code."""
    torch.backends.cudnn.allow_tf32 = False  # a torch.compile that falls back would compare cuDNN's LSTM in tf32
    print(torch.cuda.get_device_name())
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ("auto", "spatial"):
            _sizes_streams_graphs(dtype, shape)
    _torch_compile()
    _weights_on_the_gpu()
    _row_numbers()
    print("failed: " + ", ".join(failures) if failures else "all right")
    return bool(failures)


class Messages(torch.nn.Module):
    """Rows gathered by one index and added to rows by another, in one pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))

    def forward(self, x: torch.Tensor, senders: torch.Tensor, receivers: torch.Tensor) -> torch.Tensor:
        messages = self.net(torch.index_select(x, 0, senders))
        return torch.zeros_like(x).index_add(0, receivers, messages)


def _row_numbers() -> None:
    """Numbers out of range: reported by who waits, or by the next call, and no harm to later ones."""
    torch.manual_seed(8)
    model = Messages().bfloat16()
    args = torch.randn(500, 64).bfloat16(), *torch.randint(0, 500, (2, 20_000))
    compiled = kitsune_mlir.compile(model, args, target="sm_90a")
    exact, on_gpu = copy.deepcopy(model).double(), [x.cuda() for x in args]
    with torch.no_grad():
        wanted = exact(args[0].double(), *args[1:])

    def refuses(what: str, run: Callable[[], object]) -> None:
        try:
            run()
            found = "nothing"
        except UserError as error:
            found = str(error)
        good = "check_gpu_calls.py" in found and "an index is out of range" in found
        failures.extend([] if good else [what])
        print(f"{what:58} {'right' if good else 'WRONG'}: {found}", flush=True)

    for position, wrong in ((1, 500), (1, -1), (1, 1 << 40), (2, 500), (2, -(1 << 40))):
        bad = [x.clone() for x in args]
        bad[position][17] = wrong
        refuses(f"row {wrong} of input {position}, from the host", lambda bad=bad: compiled(*bad))
        compiled(*[x.cuda() for x in bad])
        refuses("  on the GPU, synchronize", compiled.synchronize)
        compiled(*[x.cuda() for x in bad])
        torch.cuda.synchronize()
        refuses("  on the GPU, the next call", lambda: compiled(*on_gpu))
        check("  a good call after", compiled(*on_gpu).cpu(), wanted, BOUNDS[torch.bfloat16])
    compiled.synchronize()


def _sizes_streams_graphs(dtype: torch.dtype, shape: str) -> None:
    model, args = nerf(dtype=dtype)[:2]
    rows = torch.export.Dim("rows", min=0, max=1 << 24)
    dynamic = tuple({0: rows} for _ in args)
    start = time.perf_counter()
    compiled = kitsune_mlir.compile(
        model, args, target="sm_90a", dynamic_shapes=dynamic, options={"place-stages": f"shape={shape}"}
    )
    label = f"{str(dtype).removeprefix('torch.')} {shape}"
    print(f"{label}: compiled in {time.perf_counter() - start:.2f} s, {compiled.plan['operators']}")
    exact = model.double().cuda()
    bound = BOUNDS[dtype]

    def fresh(count: int) -> list[torch.Tensor]:
        return [torch.rand(count, *arg.shape[1:], device="cuda", dtype=arg.dtype) * 2 - 1 for arg in args]

    for count in (0, 1, 17, 64, 65, 1000, 65536):
        inputs = fresh(count)
        for i, (found, wanted) in enumerate(zip(results(compiled(*inputs)), results(exact(*_double(inputs))))):
            check(f"{label}: {count} rows, output {i}", found, wanted, bound)

    shifted = [torch.empty(value.numel() + 3, device="cuda", dtype=value.dtype)[3:].view_as(value) for value in inputs]
    for target, value in zip(shifted, inputs):
        target.copy_(value)
    check(
        f"{label}: inputs off 16-byte addresses",
        results(compiled(*shifted))[0],
        results(exact(*_double(inputs)))[0],
        bound,
    )

    inputs, other = fresh(1000), fresh(777)
    wanted, wanted_other = results(exact(*_double(inputs))), results(exact(*_double(other)))
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(first):
            on_first = results(compiled(*inputs))
        with torch.cuda.stream(second):
            on_second = results(compiled(*other))
    torch.cuda.synchronize()
    check(f"{label}: stream 1 of two at once", on_first[0], wanted[0], bound)
    check(f"{label}: stream 2 of two at once", on_second[0], wanted_other[0], bound)

    runner = compiled._runner("sm_90a")
    with torch.cuda.stream(first):
        runner.reserve(inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=first):
            captured = [torch.from_dlpack(result) for result in runner.launch(inputs)]
    torch.cuda.synchronize()
    for tensor, values in zip(inputs, fresh(1000)):
        tensor.copy_(values)
    for tensor in captured:
        tensor.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    check(f"{label}: a replayed graph, new inputs", captured[0], results(exact(*_double(inputs)))[0], bound)

    if len(args) > 1:
        try:
            compiled(fresh(64)[0], *fresh(65)[1:])
            failures.append(f"{label}: inputs with different rows were accepted")
        except UserError as error:
            print(f"{label}: different rows are refused: {error}")


def _double(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [value.double() if value.is_floating_point() else value for value in inputs]


def _torch_compile() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(96, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 40)
    ).cuda()
    x = torch.randn(1031, 96, device="cuda")
    with torch.no_grad():
        found = torch.compile(model, backend="kitsune", options={"target": "sm_90a"})(x)
        check("torch.compile, 1031 rows", found, model.double()(x.double()), BOUNDS[torch.float32])


class _Attention(torch.nn.Module):
    """Causal attention, eight heads of queries to two of keys and values: torch picks its kernel by device."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.pairs = torch.nn.Linear(64, 128), torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.queries(x).unflatten(-1, (8, 16)).transpose(1, 2)
        k, v = self.pairs(x).unflatten(-1, (4, 16)).transpose(1, 2).chunk(2, 1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def _weights_on_the_gpu() -> None:
    """Models whose weights are on the GPU compile as those on the CPU do: the same plan, right results."""
    cases: dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]] = {
        "GRUCell": (torch.nn.GRUCell(64, 128), (torch.randn(256, 64), torch.randn(256, 128))),
        "LSTMCell": (torch.nn.LSTMCell(64, 128), (torch.randn(256, 64),)),
        "LSTM": (torch.nn.LSTM(32, 64, batch_first=True), (torch.randn(16, 5, 32),)),
        "causal grouped attention": (_Attention(), (torch.randn(2, 96, 64),)),
    }
    for name, (model, args) in cases.items():
        model.requires_grad_(False)
        on_cpu = kitsune_mlir.compile(model, args, target="sm_90a")
        model.cuda()
        inputs = tuple(arg.cuda() for arg in args)
        compiled = kitsune_mlir.compile(model, inputs, target="sm_90a")
        if compiled.plan["operators"] != on_cpu.plan["operators"]:
            failures.append(f"{name}: planned otherwise with its weights on the GPU")
        with torch.no_grad(), warnings.catch_warnings(record=True) as said:
            through_torch = torch.compile(model, backend="kitsune", options={"target": "sm_90a"})(*inputs)
            wanted = _first(copy.deepcopy(model).double()(*_double(list(inputs))))
        refusals = [str(warning.message) for warning in said if "kitsune backend" in str(warning.message)]
        failures.extend(f"{name}: {refusal}" for refusal in refusals)
        check(f"{name}, weights on the GPU", _first(compiled(*inputs)), wanted, BOUNDS[torch.float32])
        check(f"{name}, torch.compile", _first(through_torch), wanted, BOUNDS[torch.float32])


def _first(value: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return results(value)[0]


if __name__ == "__main__":
    sys.exit(main())
