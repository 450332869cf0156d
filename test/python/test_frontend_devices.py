"""Models on a GPU, without one: their graphs become those of the CPU, and what torch fused for a GPU is known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

from kitsune_mlir.frontend import import_model
from kitsune_mlir.frontend.decompositions import table
from kitsune_mlir.frontend.torch_program import on_cpu

aten = torch.ops.aten


class Recurrent(nn.Module):
    """Operators that torch takes apart by device, and a constructor that names one."""

    def __init__(self, device: str):
        super().__init__()
        sizes = (64, 8), (64, 16), (64,), (64,)
        weights = [nn.Parameter(torch.empty(size, device=device), requires_grad=False) for size in sizes]
        self.weights = nn.ParameterList(weights)

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(16, 16, device=x.device)
        q, _ = torch.lstm_cell(x, (state, state), *self.weights)
        q = q.view(1, 4, 4, 16) + torch.ones(16, device=x.device)
        return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)


def test_a_graph_from_a_gpu_becomes_the_graph_of_the_cpu() -> None:
    found = {}
    for device in ("cpu", "cuda"):
        with FakeTensorMode():
            model, args = Recurrent(device), (torch.ones(16, 8, device=device), torch.ones(1, 2, 4, 16, device=device))
        exported = torch.export.export(model, args, strict=False)
        before = str(exported.graph_module.code)
        moved = on_cpu(exported)
        assert (moved is exported) == (device == "cpu")
        assert str(exported.graph_module.code) == before
        assert {value.device.type for value in exported.state_dict.values()} == {device}
        found[device] = moved.run_decompositions(table()).graph_module.code
    assert found["cuda"] == found["cpu"] and "fused" not in found["cpu"]


def test_fused_cells() -> None:
    x, h, c = torch.randn(3, 5), torch.randn(3, 4), torch.randn(3, 4)
    for gates, op, wanted in (
        (4, aten._thnn_fused_lstm_cell.default, lambda *weights: torch.lstm_cell(x, (h, c), *weights)),
        (3, aten._thnn_fused_gru_cell.default, lambda *weights: (torch.gru_cell(x, h, *weights),)),
    ):
        w_x, w_h, b_x, b_h = (torch.randn(gates * 4, *size) for size in ((5,), (4,), (), ()))
        state = c if gates == 4 else h
        for biases in ((b_x, b_h), ()):
            found = table()[op](x @ w_x.t(), h @ w_h.t(), state, *biases)
            assert len(found) == len(op._schema.returns)
            torch.testing.assert_close(found[:-1], wanted(w_x, w_h, *biases))


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention(causal: bool) -> None:
    lengths = (7, 5, 5) if causal else (5, 7, 7)
    q, k, v = (torch.randn(2, 4, length, 16) for length in lengths)
    bias = None if causal else torch.randn(2, 4, *lengths[:2])
    for op, extra in (
        (aten._scaled_dot_product_flash_attention.default, ()),
        (aten._scaled_dot_product_efficient_attention.default, (bias, False)),
        (aten._scaled_dot_product_cudnn_attention.default, (bias, True)),
    ):
        found = table()[op](q, k, v, *extra, 0.0, causal, scale=0.3)
        assert len(found) == len(op._schema.returns)
        wanted = F.scaled_dot_product_attention(q, k, v, *extra[:1], is_causal=causal, scale=0.3)
        torch.testing.assert_close(found[0], wanted)
        assert table()[op](q, k, v, *extra, 0.1, causal) is NotImplemented


def test_threads_wait_for_each_other() -> None:
    def results(width: int) -> list[tuple[int | None, ...]]:
        return [output.spec.shape for output in import_model(nn.Linear(4, width), torch.randn(3, 4)).outputs]

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(results, range(1, 7))) == [[(3, width)] for width in range(1, 7)]
