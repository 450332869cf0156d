"""Cells of recurrent networks (nn.LSTMCell, nn.GRUCell, nn.RNNCell) as torch computes them, but for where it writes.

torch's own forms add in place, and what writes cannot be traced plainly (plain_trace.py): such a graph is traced three
times, which takes longer than all else for a loop of many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

aten = torch.ops.aten


def lstm_cell(
    x: Tensor, state: Sequence[Tensor], w_x: Tensor, w_h: Tensor, b_x: Tensor | None = None, b_h: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The new hidden state and the new cell, each [batch, width] as those of `state`; weights are of the four gates."""
    hidden, cell = state
    gates = linear(hidden, w_h, b_h) + linear(x, w_x, b_x)
    in_gate, forget_gate, cell_gate, out_gate = gates.unsafe_chunk(4, 1)
    in_gate, forget_gate, cell_gate = in_gate.sigmoid(), forget_gate.sigmoid(), cell_gate.tanh()
    out_gate = out_gate.sigmoid()
    cell = forget_gate * cell + in_gate * cell_gate
    return out_gate * cell.tanh(), cell


def gru_cell(
    x: Tensor, hidden: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor | None = None, b_h: Tensor | None = None
) -> Tensor:
    """The new hidden state [batch, width]; weights are of the three gates."""
    in_reset, in_update, in_new = linear(x, w_x, b_x).unsafe_chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = linear(hidden, w_h, b_h).unsafe_chunk(3, 1)
    reset, update = (hidden_reset + in_reset).sigmoid(), (hidden_update + in_update).sigmoid()
    new = (in_new + hidden_new * reset).tanh()
    return (hidden - new) * update + new


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def cell(
        x: Tensor, hidden: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor | None = None, b_h: Tensor | None = None
    ) -> Tensor:
        return activation(linear(hidden, w_h, b_h) + linear(x, w_x, b_x))

    return cell


RECURRENT_CELLS: dict[Any, Callable[..., Any]] = {
    aten.lstm_cell.default: lstm_cell,
    aten.gru_cell.default: gru_cell,
    aten.rnn_tanh_cell.default: _plain_cell(torch.tanh),
    aten.rnn_relu_cell.default: _plain_cell(torch.relu),
}
