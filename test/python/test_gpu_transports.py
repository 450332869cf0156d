"""One pipeline, every transport of its queues: the same numbers (on the stand-in device)."""

import pytest
import torch
from test_gpu_chained import mlp
from test_gpu_models import check
from test_gpu_pipelines import runner_of
from torch import nn

pytestmark = pytest.mark.usefixtures("unassembled")

# By transport: how place-stages is asked for it, and what the launch then says.
FORCED = {
    "reg": ("chained", '"cluster": 1, "threads": 256'),
    "dsmem": ("chained cluster=2", '"cluster": 2, "threads": 384'),
    "l2": ("spatial", '"cooperative": true'),
}


@pytest.mark.parametrize("transport", FORCED)
@pytest.mark.parametrize("widths, rows", [((64, 128, 64, 64), 300), ((128, 64, 192, 64), 1)], ids=str)
def test_same_numbers(transport, widths, rows, small_gpu):
    shape, said = FORCED[transport]
    model = mlp(torch.bfloat16, widths, nn.ReLU).eval()
    args = (torch.randn(rows, widths[0], dtype=torch.bfloat16),)
    with torch.no_grad():
        wanted = model(*args)
    program, runner, device = runner_of(model, args, small_gpu, shape)
    for _ in range(2):
        check(program, runner, args, wanted, 2e-2)
    assert device.pipeline_launches
    assert said in str(program.module).replace("\\22", '"')
