"""Graphs whose tensors are read twice, by what is read twice: what goes through them goes through each operator once,
or a few times, and not by each of the ways there are to it."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.codegen.schedule.parts import is_along_columns
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes import broadcast_follows
from kitsune_mlir.passes.of_places import is_of_places

STEPS = 40  # ways double with each
SAME = "affine_map<(i) -> (i)>"


def steps(count, last=""):
    """Vectors, each of which is made of the one before, and of that one again."""
    maps = f'{{indexing_maps = [{SAME}, {SAME}, {SAME}], iterator_types = ["parallel"]}}'
    body = [
        f"""
    %v{i + 1} = linalg.generic {maps} ins(%v{i}, %v{i} : tensor<8xi1>, tensor<8xi1>) outs(%e : tensor<8xi1>) {{
    ^bb0(%a: i1, %b: i1, %o: i1):
      %c = arith.xori %a, %b : i1
      linalg.yield %c : i1
    }} -> tensor<8xi1>"""
        for i in range(count)
    ]
    return mlir.parse(
        f"""
  func.func @f() -> tensor<8xi1> {{
    %e = tensor.empty() : tensor<8xi1>
    %t = arith.constant true
    %v0 = linalg.fill ins(%t : i1) outs(%e : tensor<8xi1>) -> tensor<8xi1>{"".join(body)}{last}
    return %v{count} : tensor<8xi1>
  }}""",
        mlir.context(),
    )


def test_places():
    """Four steps take 15 operations for an element, five take 31."""
    for count, few in ((4, True), (5, False), (STEPS, False)):
        module = steps(count)
        assert is_of_places(walk(module, "linalg.generic")[-1].results[0]) == few


@pytest.mark.parametrize("place, shape, along", [("j", "4x8", True), ("i", "8x4", False)])
def test_vectors_along_columns(place, shape, along):
    last = f"""
    %y = tensor.empty() : tensor<{shape}xi1>
    %z = linalg.generic {{indexing_maps = [affine_map<(i, j) -> ({place})>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]}} ins(%v{STEPS} : tensor<8xi1>) outs(%y : tensor<{shape}xi1>) {{
    ^bb0(%a: i1, %o: i1):
      linalg.yield %a : i1
    }} -> tensor<{shape}xi1>"""
    module = steps(STEPS, last)
    with module.context:
        assert is_along_columns(walk(module, "linalg.generic")[0].results[0]) == along


@pytest.mark.usefixtures("unassembled")
def test_a_mask_that_is_computed_in_many_steps():
    """Its compilation did not end."""

    def attended(x):
        mask = x[..., 0] > 0
        for _ in range(STEPS // 2):
            mask = (mask ^ (mask & ~mask)) | mask
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, :, None, :].expand(2, 2, 40, 40))

    compiled = kitsune_mlir.compile(Function(attended), (torch.randn(2, 2, 40, 32),), target="sm_90a")
    assert compiled.plan["predicted_us"] > 0


@pytest.mark.usefixtures("unassembled")
def test_operators_behind_a_product(monkeypatch):
    """Which of them are made of broadcasts alone is found out once for each, and not for each that is behind it."""
    looked, count = [], broadcast_follows._counted
    monkeypatch.setattr(broadcast_follows, "_counted", lambda op, *rest: looked.append(op.name) or count(op, *rest))
    found = []
    for steps in (5, 20):
        looked.clear()

        def twisted(x, weight, steps=steps):
            y = x @ weight
            for i in range(steps):
                y = torch.tanh(y) * y + (y - 0.1 * i)
            return y

        kitsune_mlir.compile(Function(twisted), (torch.randn(128, 64), torch.randn(64, 64)), target="sm_90a")
        found.append(len(looked))
    assert 0 < found[1] < 5 * found[0]
