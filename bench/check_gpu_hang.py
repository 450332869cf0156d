"""Shows what kernels that would hang do in a debug build: an error that says who waits for what.

    python bench/check_gpu_hang.py        # needs a GPU, torch, torch-mlir and cuda-core

A signal is left out of the generated code on purpose, in each kind of kernel. Exits 1 if one is not reported, or if a
sound kernel, built with a budget too, does not give the right numbers afterwards, in the same process.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import kitsune_mlir
from examples.models.mlp import mlp
from kitsune_mlir.codegen.hopper import cluster, mbarrier, tma
from kitsune_mlir.codegen.hopper.tile_ring import TileRing
from kitsune_mlir.errors import InternalError

BUDGET = {"convert-kitsune-to-gpu": "wait-budget=1000000"}


class Sum(nn.Module):
    """A product that sums over the rows."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.t() @ y


class Batched(nn.Module):
    """Products outside of pipelines: a kernel at the schedule level, and another for a row group if that is faster."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).softmax(-1)


def silent(*_: Any) -> None:
    """In place of a signal."""


@dataclass(frozen=True)
class Case:
    """A model in a shape, what is broken in its kernel, and what the report must say."""

    name: str
    model: nn.Module
    args: tuple[torch.Tensor, ...]
    shape: str
    owner: Any
    method: str
    broken: Callable[..., None]
    said: str


def cases() -> list[Case]:
    """A case of every kind of kernel, in every kind of wait."""
    torch.manual_seed(0)
    half, x = torch.bfloat16, torch.randn(65536, 64)
    wide = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()).to(half)
    pair = torch.randn(65536, 256, dtype=half), torch.randn(65536, 256, dtype=half)
    batch = torch.randn(16, 1024, 512, dtype=half), torch.randn(16, 512, 256, dtype=half)
    halves = mlp(rows=65536, dtype=half)
    streamed = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 256)).to(half)
    return [
        # Who waits for a free slot and who then waits for a tile both say what is true; either may be first.
        Case("L2: no tile is published", *halves, "spatial", TileRing, "publish", silent, "of queue"),
        Case("L2: no slot is released", *halves, "spatial", TileRing, "release", silent, "of queue"),
        Case("shared memory: no slot is released", streamed, (torch.randn(65536, 512).to(half),), "chained",
             mbarrier.Ring, "release", silent, "slot of the ring"),
        Case("cluster: no tile is released", wide, (x.to(half),), "chained", cluster, "remote_arrive", silent,
             "slot of the ring of sent_1"),
        Case("split-K: sums over a part of k are not sent", nn.Linear(4096, 256).to(half),
             (torch.randn(128, 4096).to(half),), "auto", cluster, "send", silent, "their parts of k"),
        Case("sum over the rows: no slot is released", Sum(), pair, "chained", mbarrier.Ring, "release", silent,
             "slot of the ring of"),
        # The producer that finds no slot free and the consumer that finds none full both say what is true.
        Case("schedule: no slot is released", Batched(), batch, "auto", mbarrier.Ring, "release", silent,
             "slot of the ring of"),
        Case("schedule: nothing is copied", Batched(), batch, "auto", tma, "load", silent, "slot of the ring of"),
    ]  # fmt: skip


def compiled(case: Case) -> Callable[..., torch.Tensor]:
    options = {"place-stages": f"shape={case.shape}", "schedule-products": "split-k=4"} | BUDGET
    return kitsune_mlir.compile(case.model, case.args, target="sm_90a", options=options)


def shows(case: Case) -> bool:
    """Runs the broken kernel, then a sound one; whether both did what they should."""
    with mock.patch.object(case.owner, case.method, case.broken):
        broken = compiled(case)
    inputs = [value.cuda() for value in case.args]
    start = time.perf_counter()
    try:
        broken(*inputs)
        said = "WRONG: it came to an end"
    except InternalError as error:
        said = f"{'reported' if case.said in str(error) else 'WRONG'}: {error}"
    print(f"{case.name}: {said} ({time.perf_counter() - start:.1f} s)", flush=True)
    found = compiled(case)(*inputs)
    exact = copy.deepcopy(case.model).double().cuda()
    wanted = exact(*(value.double() for value in inputs))
    error = ((found.double() - wanted).norm() / wanted.norm()).item()
    print(f"    a sound kernel afterwards: relative error {error:.1e}", flush=True)
    return not said.startswith("WRONG") and error < 2e-2


def main() -> int:
    return 0 if all([shows(case) for case in cases()]) else 1


if __name__ == "__main__":
    sys.exit(main())
