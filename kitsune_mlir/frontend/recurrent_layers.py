"""Layers of recurrent networks (nn.LSTM, nn.GRU, nn.RNN): a product for what inputs make of the gates of all steps, and
one operator for the steps (kitsune.recurrent), whatever the batch and the number of steps are, open ones included.

States that are projected, as `proj_size` has it, are results of the state before their projection P, which a product
with both matrices, W P, gives gates: P is then one product for all steps. What a first state gives the gates is added
to what inputs make of those of the first step.

Gradients, dropout between layers and f64 are what torch's own forms make of them, step by step, and so are wide layers
of a known number of steps. So are steps whose products are large, if they are no more than some: tensor cores do these
(passes/step_kernel.py), an operator's threads do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.nn.functional import linear

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.planning.recurrences import GATES, MOST_OPEN_WIDTH, MOST_WIDTH

from .own_operators import LSTM_STEPS, STEPS
from .shapes import in_example

aten = torch.ops.aten

_KINDS = (torch.float32, torch.bfloat16, torch.float16)
_FEW, _MANY = 3, 100  # steps, of which as many or fewer are taken one by one; of large products, too
_LARGE = {torch.bfloat16: 8e6, torch.float16: 8e6, torch.float32: 40e6}  # products of numbers in a step (H200)


def _layers(
    cell: str,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, list[Tensor]] | None:
    """The results of the last layer, and the last states (and cells), by layer and direction, as `states` are; None
    for what torch's own forms do."""
    directions, width, time = 2 if bidirectional else 1, states[-1].shape[2], 1 if batch_first else 0
    count = len(params) // (layers * directions)
    is_projected = count == (5 if has_biases else 3)
    most = MOST_WIDTH if isinstance(x.shape[time], int) else MOST_OPEN_WIDTH
    if train and dropout or x.dim() != 3 or x.dtype not in _KINDS or not isinstance(width, int) or width > most:
        return None
    if any(value.requires_grad for value in (x, *states, *params)) and torch.is_grad_enabled():
        return None
    steps, work = in_example(x.shape[time]), directions * GATES[cell] * width * width * in_example(x.shape[1 - time])
    is_large = width % 64 == 0 and work >= _LARGE[x.dtype] and steps <= _MANY
    if isinstance(x.shape[time], int) and (steps <= _FEW or is_large):
        return None
    last: list[list[Tensor]] = [[] for _ in states]
    for layer in range(layers):
        first = layer * directions
        own = [params[number * count : (number + 1) * count] for number in range(first, first + directions)]
        bias = torch.stack([each[3] if has_biases else each[0].new_zeros(each[0].shape[0]) for each in own])
        of_input = torch.cat([each[0] for each in own])
        given = linear(x, of_input, torch.cat([each[2] for each in own]) if has_biases else None)
        begun = [state[first : first + directions] for state in states]
        if is_projected:
            given = _with_first(given, begun[0], [each[1] for each in own], time)
            weights = torch.stack([(each[1] @ each[-1]).t() for each in own])
            begun = [torch.zeros_like(begun[1]), begun[1]]
        else:
            weights = torch.stack([each[1].t() for each in own])
        if cell == "lstm":
            x, *found = LSTM_STEPS(given, weights, bias, *begun, time)
        else:
            x, *found = STEPS(given, weights, bias, *begun, cell, time)
        if is_projected:
            parts = zip(x.chunk(directions, -1), own, strict=True)
            x = torch.cat([linear(part, each[-1]) for part, each in parts], -1)
            found[0] = torch.stack([linear(part, each[-1]) for part, each in zip(found[0], own, strict=True)])
        for parts, part in zip(last, found, strict=True):
            parts.append(part)
    return x, [torch.cat(parts) for parts in last]


def _with_first(given: Tensor, states: Tensor, weights: Sequence[Tensor], time: int) -> Tensor:
    """What inputs make of gates, with what first states give those of the first step, in either direction."""
    for number, weight in enumerate(weights):
        first = linear(states[number], weight).unsqueeze(time)
        places = torch.arange(given.shape[time], device=given.device)
        is_first = places == (given.shape[time] - 1 if number else 0)
        of_all = torch.where(is_first.view(-1, *[1] * (2 - time)), first, torch.zeros_like(first))
        parts = list(given.chunk(len(weights), -1))
        parts[number] = parts[number] + of_all
        given = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
    return given


def _of_torch(operator: Any, x: Tensor, *args: Any) -> Any:
    """torch's own form. Raises UnsupportedError for an open number of steps, of which it has none."""
    batch_first = args[-1]
    if not isinstance(x.shape[1 if batch_first else 0], int):
        raise UnsupportedError(
            f"{operator}: a recurrent layer of an open number of steps takes no gradients or dropout, has numbers of 32"
            f" or 16 bits, and {MOST_OPEN_WIDTH} columns at most: export it with a known number of steps"
        )
    return decomposition_table[operator](x, *args)


def lstm(x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], *options: Any) -> Any:
    found = _layers("lstm", x, states, params, *options)
    if found is None:
        return _of_torch(aten.lstm.input, x, states, params, *options)
    return found[0], *found[1]


def _of_one_state(cell: str, operator: Any, x: Tensor, state: Tensor, params: Sequence[Tensor], *options: Any) -> Any:
    found = _layers(cell, x, [state], params, *options)
    if found is None:
        return _of_torch(operator, x, state, params, *options)
    return found[0], *found[1]


RECURRENT_LAYERS: dict[Any, Callable[..., Any]] = {
    aten.lstm.input: lstm,
    aten.gru.input: partial(_of_one_state, "gru", aten.gru.input),
    aten.rnn_tanh.input: partial(_of_one_state, "tanh", aten.rnn_tanh.input),
    aten.rnn_relu.input: partial(_of_one_state, "relu", aten.rnn_relu.input),
}
