"""Layers of recurrent networks (nn.LSTM, nn.GRU, nn.RNN) for an open batch, step by step.

torch's own forms have time first. Then a step's rows begin behind as many as the batch has for each step before, and
no kernel reads them where they lie. Here the batch is first: what a step takes of the inputs are columns of longer
rows, and what it gives are columns of the results. Of a known batch torch's own forms are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.nn.functional import linear

from .recurrent_cells import gru_step, lstm_step, plain_step

aten = torch.ops.aten

State = tuple[Tensor, ...]  # of a direction of a layer, each [batch, width]
Step = Callable[[Tensor, State, Sequence[Tensor | None]], State]  # the first of the new state is the result


def _run(
    step: Step,
    x: Tensor,
    states: Sequence[State],
    params: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """The results of the last layer, and the last states, by layer and direction; None for what torch's own forms
    do."""
    batch, length = x.shape[:2] if batch_first else (x.shape[1], x.shape[0])
    directions = 2 if bidirectional else 1
    each = len(params) // (layers * directions) - (2 if has_biases else 0)
    open_batch = isinstance(batch, torch.SymInt) and isinstance(length, int) and length > 0
    if not open_batch or train and dropout:
        return None
    x, last = x if batch_first else x.transpose(0, 1), []
    for layer in range(layers):
        results = []
        for number in range(layer * directions, (layer + 1) * directions):
            own = _Own.of(params, number, has_biases, each)
            given = linear(x, own.of_input, own.input_bias).unbind(1)
            state, found = states[number], []
            for part in reversed(given) if number % directions else given:
                state = step(part, state, own.others)
                found.append(state[0])
            results.append(found[::-1] if number % directions else found)
            last.append(state)
        steps = [part for parts in zip(*results, strict=True) for part in parts]
        x = torch.cat(steps, 1).view(batch, length, -1)
    return x if batch_first else x.transpose(0, 1), last


class _Own:
    """The parameters of a direction of a layer; `others` are those that steps take besides their inputs."""

    def __init__(self, of_input: Tensor, input_bias: Tensor | None, others: Sequence[Tensor | None]) -> None:
        self.of_input, self.input_bias, self.others = of_input, input_bias, others

    @staticmethod
    def of(params: Sequence[Tensor], number: int, has_biases: bool, each: int) -> _Own:
        count = each + (2 if has_biases else 0)
        own: Iterator[Tensor] = iter(params[number * count : (number + 1) * count])
        of_input, of_state = next(own), next(own)
        biases = (next(own), next(own)) if has_biases else (None, None)
        return _Own(of_input, biases[0], [of_state, biases[1], *own])


def lstm(x: Tensor, state: Sequence[Tensor], params: Sequence[Tensor], *options: Any) -> Any:
    found = _run(lstm_step, x, list(zip(*(each.unbind(0) for each in state), strict=True)), params, *options)
    if found is None:
        return decomposition_table[aten.lstm.input](x, state, params, *options)
    y, last = found
    return y, *(torch.stack(parts) for parts in zip(*last, strict=True))


def _of_one_state(step: Step, operator: Any, x: Tensor, state: Tensor, params: Sequence[Tensor], *options: Any) -> Any:
    found = _run(step, x, [(each,) for each in state.unbind(0)], params, *options)
    if found is None:
        return decomposition_table[operator](x, state, params, *options)
    return found[0], torch.stack([each[0] for each in found[1]])


RECURRENT_LAYERS: dict[Any, Callable[..., Any]] = {
    aten.lstm.input: lstm,
    aten.gru.input: partial(_of_one_state, gru_step, aten.gru.input),
    aten.rnn_tanh.input: partial(_of_one_state, partial(plain_step, torch.tanh), aten.rnn_tanh.input),
    aten.rnn_relu.input: partial(_of_one_state, partial(plain_step, torch.relu), aten.rnn_relu.input),
}
