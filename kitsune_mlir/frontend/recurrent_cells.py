"""Cells of recurrent networks (nn.LSTMCell, nn.GRUCell, nn.RNNCell) as torch computes them, but for where it writes.

torch's own forms add in place, and what writes cannot be traced plainly (plain_trace.py): such a graph is traced three
times, which takes longer than all else for a loop of many steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions
from torch.nn.functional import linear

from .working import working

aten = torch.ops.aten

_torch_layer, _torch_rnn_layer = decompositions.one_layer_lstm, decompositions.one_layer_rnn
_PROXY = torch._C._TorchDispatchModeKey.PROXY


@contextlib.contextmanager
def layers_apart() -> Iterator[None]:
    """Within the `with`, torch takes recurrent layers apart: a library of its for CPUs has some as one operator."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with states_of_layers():
            yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


@contextlib.contextmanager
def states_of_layers() -> Iterator[None]:
    """Within the `with`, the last states of an LSTM's layer have the form of its first ones, which torch 2.11 misses by
    a dimension of 1. For one thread at a time, as all tracing."""
    decompositions.one_layer_lstm = _layer
    try:
        yield
    finally:
        decompositions.one_layer_lstm = _torch_layer


@contextlib.contextmanager
def steps_untraced() -> Iterator[None]:
    """Within the `with`, layers whose operator stays one (recurrent_layers.py) have results of their shapes and no
    more, where torch goes from step to step to find these. For one thread at a time."""
    before = decompositions.one_layer_lstm
    decompositions.one_layer_lstm, decompositions.one_layer_rnn = partial(_shapes, before), _rnn_shapes
    try:
        yield
    finally:
        decompositions.one_layer_lstm, decompositions.one_layer_rnn = before, _torch_rnn_layer


def _is_traced(x: Tensor) -> bool:
    """Whether the steps of a layer are traced, as they are for gradients, which an open number of them cannot be."""
    return isinstance(x.shape[0], int) and (torch.is_grad_enabled() or torch._C._get_dispatch_mode(_PROXY) is not None)


def _shapes(layer: Callable[..., Any], x: Tensor, states: Sequence[Tensor], *args: Any, **options: Any) -> Any:
    if _is_traced(x):
        return layer(x, states, *args, **options)
    return x.new_empty([x.shape[0], *states[0].shape]), tuple(state.new_empty(state.shape) for state in states)


def _rnn_shapes(x: Tensor, state: Tensor, *args: Any, **options: Any) -> Any:
    if _is_traced(x):
        return _torch_rnn_layer(x, state, *args, **options)
    return x.new_empty([x.shape[0], *state.shape]), state.new_empty(state.shape)


def _layer(x: Tensor, states: Sequence[Tensor], *args: Any, **options: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    found, last = _torch_layer(x, states, *args, **options)
    return found, tuple(state.squeeze(0) if state.dim() > first.dim() else state for state, first in zip(last, states))


def lstm_cell(
    x: Tensor, state: Sequence[Tensor], w_x: Tensor, w_h: Tensor, b_x: Tensor | None = None, b_h: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The new hidden state and the new cell, each [batch, width] as those of `state`; weights are of the four gates."""
    return _lstm(linear(state[0], w_h, b_h) + linear(x, w_x, b_x), state[1])


def lstm_step(of_input: Tensor, state: Sequence[Tensor], params: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    """The same with the input's part of the gates. `params`: the weight and bias of the hidden state and, where there
    is one, the weight of its projection."""
    hidden, cell = state
    w_h, b_h, *projection = params
    hidden, cell = _lstm(linear(hidden, w_h, b_h) + of_input, cell)
    return (linear(hidden, projection[0]) if projection else hidden), cell


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden state, before its projection, and the new cell."""
    in_gate, forget_gate, cell_gate, out_gate = gates.unsafe_chunk(4, 1)
    in_gate, forget_gate, cell_gate = in_gate.sigmoid(), forget_gate.sigmoid(), cell_gate.tanh()
    out_gate = out_gate.sigmoid()
    cell = forget_gate * cell + in_gate * cell_gate
    return out_gate * cell.tanh(), cell


def gru_cell(
    x: Tensor, hidden: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor | None = None, b_h: Tensor | None = None
) -> Tensor:
    """The new hidden state [batch, width]; weights are of the three gates."""
    return gru_step(linear(x, w_x, b_x), (hidden,), (w_h, b_h))[0]


def gru_step(of_input: Tensor, state: Sequence[Tensor], params: Sequence[Tensor | None]) -> tuple[Tensor]:
    """The same with the input's part of the gates; `params`: the weight and bias of the hidden state."""
    (hidden,), (w_h, b_h) = state, params
    in_reset, in_update, in_new = of_input.unsafe_chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = linear(hidden, w_h, b_h).unsafe_chunk(3, 1)
    reset, update = (hidden_reset + in_reset).sigmoid(), (hidden_update + in_update).sigmoid()
    new = (in_new + hidden_new * reset).tanh()
    return ((hidden - new) * update + new,)


def plain_step(
    activation: Callable[[Tensor], Tensor], of_input: Tensor, state: Sequence[Tensor], params: Sequence[Tensor | None]
) -> tuple[Tensor]:
    """The new hidden state [batch, width] with the input's part; `params` as those of gru_step."""
    (hidden,), (w_h, b_h) = state, params
    return (activation(linear(hidden, w_h, b_h) + of_input),)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def cell(
        x: Tensor, hidden: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor | None = None, b_h: Tensor | None = None
    ) -> Tensor:
        return activation(linear(hidden, w_h, b_h) + linear(x, w_x, b_x))

    return cell


def fused_lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cell: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The new hidden state and cell, and the gates, of which gradients are computed."""
    gates = working(_with_bias(input_gates, input_bias) + _with_bias(hidden_gates, hidden_bias))
    in_gate, forget_gate, cell_gate, out_gate = gates.chunk(4, 1)
    in_gate, forget_gate, out_gate = in_gate.sigmoid(), forget_gate.sigmoid(), out_gate.sigmoid()
    cell_gate = cell_gate.tanh()
    new_cell = forget_gate * working(cell) + in_gate * cell_gate
    hidden = out_gate * new_cell.tanh()
    workspace = torch.cat([in_gate, forget_gate, cell_gate, out_gate], 1)
    return hidden.to(cell.dtype), new_cell.to(cell.dtype), workspace.to(cell.dtype)


def fused_gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hidden: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The new hidden state, and what gradients are computed of."""
    in_reset, in_update, in_new = working(_with_bias(input_gates, input_bias)).chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = working(_with_bias(hidden_gates, hidden_bias)).chunk(3, 1)
    reset, update = (in_reset + hidden_reset).sigmoid(), (in_update + hidden_update).sigmoid()
    new = (in_new + reset * hidden_new).tanh()
    before = working(hidden)
    result = (before - new) * update + new
    workspace = torch.cat([reset, update, new, before, hidden_new], 1)
    return result.to(hidden.dtype), workspace.to(hidden.dtype)


def _with_bias(gates: Tensor, bias: Tensor | None) -> Tensor:
    """Sums in their own type, in which products are written, and read again."""
    return gates if bias is None else gates + bias


def _side_by_side(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Gradients by gates, rounded one by one."""
    return torch.cat([part.to(like.dtype) for part in parts], 1)


def fused_lstm_backward(
    grad_hidden: Tensor | None, grad_cell: Tensor | None, before: Tensor, cell: Tensor, workspace: Tensor, biased: bool
) -> tuple[Tensor | None, ...]:
    """By the sums of the four gates, the cell before, and the biases."""
    in_gate, forget_gate, cell_gate, out_gate = working(workspace).chunk(4, 1)
    squashed = working(cell).tanh()
    of_cell: Any = 0.0 if grad_cell is None else working(grad_cell)
    of_out: Any = torch.zeros_like(squashed)
    if grad_hidden is not None:
        of_cell = of_cell + working(grad_hidden) * out_gate * (1 - squashed * squashed)
        of_out = working(grad_hidden) * squashed
    of_gates = [
        of_cell * cell_gate * in_gate * (1 - in_gate),
        of_cell * working(before) * forget_gate * (1 - forget_gate),
        of_cell * in_gate * (1 - cell_gate * cell_gate),
        of_out * out_gate * (1 - out_gate),
    ]
    gates = _side_by_side(of_gates, workspace)
    return gates, (of_cell * forget_gate).to(before.dtype), gates.sum(0) if biased else None


def fused_gru_backward(grad: Tensor, workspace: Tensor, biased: bool) -> tuple[Tensor | None, ...]:
    """By the input's and the hidden state's sums of the three gates, the state before, and the biases of both."""
    reset, update, new, before, hidden_new = working(workspace).chunk(5, 1)
    grad = working(grad)
    of_new = grad * (1 - update) * (1 - new * new)
    of_update = grad * (before - new) * update * (1 - update)
    of_reset = of_new * hidden_new * reset * (1 - reset)
    of_input = _side_by_side([of_reset, of_update, of_new], workspace)
    of_hidden = _side_by_side([of_reset, of_update, of_new * reset], workspace)
    biases = [gates.sum(0) if biased else None for gates in (of_input, of_hidden)]
    return of_input, of_hidden, (grad * update).to(workspace.dtype), *biases


RECURRENT_CELLS: dict[Any, Callable[..., Any]] = {
    aten.lstm_cell.default: lstm_cell,
    aten.gru_cell.default: gru_cell,
    aten.rnn_tanh_cell.default: _plain_cell(torch.tanh),
    aten.rnn_relu_cell.default: _plain_cell(torch.relu),
    aten._thnn_fused_lstm_cell.default: fused_lstm_cell,
    aten._thnn_fused_gru_cell.default: fused_gru_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: fused_lstm_backward,
    aten._thnn_fused_gru_cell_backward.default: fused_gru_backward,
}
