"""Shows what a pipeline that would hang does in a debug build: an error that names the queue.

    python bench/check_gpu_hang.py        # needs a GPU, torch, torch-mlir and cuda-core

A queue's publication is left out of the generated code on purpose. Exits 1 if that is not reported, or if
the GPU does not work afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import kitsune_mlir
from examples.models.mlp import mlp
from kitsune_mlir.codegen.pipeline import ring
from kitsune_mlir.errors import InternalError

OPTIONS = {"place-stages": "shape=spatial", "convert-kitsune-to-gpu": "wait-budget=1000000"}


def main() -> int:
    """Runs the broken kernel, then a sound one; gives the exit code."""
    model, args = mlp(dtype=torch.bfloat16)[:2]
    publish = ring.Ring.publish

    def silent(self: ring.Ring, tile: object) -> None:
        if self.number != 1:
            publish(self, tile)

    with mock.patch.object(ring.Ring, "publish", silent):
        broken = kitsune_mlir.compile(model, args, target="sm_90a", options=OPTIONS)
    inputs = [value.cuda() for value in args]
    try:
        broken(*inputs)
        print("WRONG: a kernel that cannot finish was not reported")
        return 1
    except InternalError as error:
        print(f"reported: {error}")
    found = kitsune_mlir.compile(model, args, target="sm_90a", options=OPTIONS)(*inputs)
    wanted = model.double().cuda()(*(value.double() for value in inputs))
    error = ((found.double() - wanted).norm() / wanted.norm()).item()
    print(f"a sound kernel afterwards: relative error {error:.1e}")
    return not error < 2e-2


if __name__ == "__main__":
    sys.exit(main())
