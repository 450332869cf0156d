"""PyTorch Geometric's GAT on a large graph beside PyG's eager mode and torch's CUDA graph, on a GPU.

    python bench/pyg_gat.py --nodes 200000 --edges 3000000

Ours is compiled for the sizes of the graph. Results are compared first, with float64 on a graph of a hundredth of the
size and with eager mode on the whole. A CUDA graph of torch's is not always to be had: what PyG does about self loops
waits for the number of edges that are none.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import kitsune_mlir

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=3_000_000)
    parser.add_argument("--width", type=int, default=128, help="columns of the nodes, and of all heads together")
    parser.add_argument("--classes", type=int, default=16, help="columns of the result, which each head has")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    warnings.simplefilter("ignore")
    from torch_geometric.nn.models import GAT

    torch.manual_seed(1)
    model = GAT(options.width, options.width, 2, options.classes, heads=options.heads).eval().to(DTYPES[options.dtype])
    with torch.no_grad():
        _check(model, options)
        _time(model, options)


def _graph(options: argparse.Namespace, part: int) -> tuple[torch.Tensor, torch.Tensor]:
    nodes, edges = options.nodes // part, options.edges // part
    return torch.randn(nodes, options.width, dtype=DTYPES[options.dtype]), torch.randint(0, nodes, (2, edges))


def _compiled(model: torch.nn.Module, args: tuple[torch.Tensor, ...], options: argparse.Namespace) -> Any:
    began = time.perf_counter()
    found = kitsune_mlir.compile(model, args, target=options.target, matmul_precision="high")
    print(
        f"compiled in {time.perf_counter() - began:.1f} s, predicted {found.plan['predicted_us'] / 1e3:.3f} ms",
        flush=True,
    )
    return found


def _check(model: torch.nn.Module, options: argparse.Namespace) -> None:
    args = _graph(options, 100)
    ours = _compiled(model, args, options)(*(x.cuda() for x in args))
    right = model.double()(args[0].double(), args[1])
    own = model.to(DTYPES[options.dtype])(*args)
    errors = [((x.cpu().double() - right).norm() / right.norm()).item() for x in (ours, own)]
    print(f"error beside float64: ours {errors[0]:.1e}, PyG's on a CPU {errors[1]:.1e}", flush=True)


def _time(model: torch.nn.Module, options: argparse.Namespace) -> None:
    args = _graph(options, 1)
    compiled = _compiled(model, args, options)
    given, on_gpu = tuple(x.cuda() for x in args), model.cuda()
    sides: dict[str, Callable[[], Any]] = {"eager": lambda: on_gpu(*given), "ours": lambda: compiled(*given)}
    difference = (compiled(*given).double() - on_gpu(*given).double()).norm() / on_gpu(*given).double().norm()
    print(f"beside eager mode {difference.item():.1e}")
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            on_gpu(*given)
        sides["CUDA graph"] = graph.replay
    except Exception as error:  # whatever torch says of it
        print(f"torch has no CUDA graph of it: {str(error).splitlines()[0]}")
        torch.cuda.synchronize()
    found = {name: _median_ms(side) for name, side in sides.items()}
    best = min(ms for name, ms in found.items() if name != "ours")
    print(", ".join(f"{name} {ms:.3f} ms" for name, ms in found.items()), f"torch / ours {best / found['ours']:.2f}")
    for launch in compiled.plan["launches"]:
        print(f"  {launch['kernel']:24} {launch['form']:18} predicted {launch['predicted_us']:8.1f} us")


def _median_ms(side: Callable[[], Any], runs: int = 10) -> float:
    times = []
    for number in range(runs + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        side()
        end.record()
        torch.cuda.synchronize()
        times += [begin.elapsed_time(end)] if number > 1 else []
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
