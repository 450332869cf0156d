"""What partition-dataflow makes of real models' linalg parses again, verifies, and loses no operator."""

from collections import Counter

import pytest
import torch
from sample_models import imported

from kitsune_mlir import mlir
from kitsune_mlir.passes import pipeline

WORK = ("linalg.matmul", "linalg.batch_matmul", "linalg.conv_2d_nchw_fchw", "linalg.generic", "tensor.concat")
PIPELINES = {"mlp": 1, "nerf": 1, "transformer": 2, "meshgraphnets": 4, "resblock": 0}


def work_of(module) -> Counter:
    return Counter(op.name for op in mlir.walk(module, *WORK))


@pytest.mark.parametrize("name", PIPELINES)
def test_output_parses_again_and_verifies(name):
    module = imported(name, torch.float32)[2].module
    pipeline.run(module, [pipeline.make("prepare-linalg")])
    before = work_of(module)
    with mlir.collect_remarks() as remarks:
        pipeline.run(module, [pipeline.make("partition-dataflow")])
    assert len(mlir.walk(module, "kitsune.pipeline")) == PIPELINES[name]
    assert work_of(module) == before, "operators are moved, none is lost or made"
    check_round_trip(module)
    for remark in remarks:
        assert remark.message.startswith("stays outside pipelines: ")
    outside = [op for op in mlir.walk(module, *WORK) if op.parent.name == "func.func"]
    assert len(remarks) >= len(outside), "everything that stays outside is named"

    pipeline.run(module, [pipeline.make("design-pipeline")])
    check_round_trip(module)
    pipeline.run(module, [pipeline.make("place-stages", target="sm_90a"), pipeline.make("verify-dataflow")])
    check_round_trip(module)


def check_round_trip(module):
    assert module.operation.verify()
    text = str(module)
    again = mlir.parse(text, mlir.context())
    assert again.operation.verify() and str(again) == text
