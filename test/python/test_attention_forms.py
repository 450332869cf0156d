"""Attention in tiles of each form: parts of values, tf32, pieces, columns that a cluster shares."""

from dataclasses import replace

import pytest
import torch
from drawn_attention import BOUNDS, compare
from functions import Function

import kitsune_mlir
from kitsune_mlir.bench import random_attention
from kitsune_mlir.planning import attention_tiles
from kitsune_mlir.tools.gpusim import Simulation


# Parts of the values' columns, of which the last has fewer; in tf32 too.
@pytest.mark.parametrize(
    "seed, out, dtype", [(5, 512, torch.bfloat16), (46, 300, torch.float16), (45, 300, torch.float32)]
)
def test_wide_values(seed, out, dtype, always, small_gpu):
    of = replace(random_attention.draw(seed, small=True), batch=1, out=out, dtype=dtype)
    module, args = random_attention.Attention(of), random_attention.arguments(of, seed)
    compiled = kitsune_mlir.compile(module, args, target=small_gpu, matmul_precision="high")
    assert sum(launch["kernel"] == "attention0" for launch in compiled.plan["launches"]) == 1
    assert all(not kernel.get("spill_stores") for kernel in compiled.plan["kernels"])
    compare(module, of, Simulation(compiled, seed=seed), seed)


# Values whose rows are padded and put in order, masks that are read, groups of heads; an open batch, open rows, and in
# pieces open tokens.
@pytest.mark.parametrize(
    "seed, what, precision",
    [
        *((seed, "", "high") for seed in (3, 9, 15, 17, 26)),
        *((43, "batch", "high"), (53, "rows", "high")),
        *((3, "", "highest"), (26, "", "highest")),
        *((43, "batch", "highest"), (53, "rows", "highest"), (46, "tokens", "highest")),
    ],
)
def test_f32(seed, what, precision, always, small_gpu, request):
    of = random_attention.draw(seed, small=True, open=what)
    of = replace(of, batch=min(of.batch, 2), heads=min(of.heads, 2), dtype=torch.float32)
    of = replace(of, key_heads=min(of.key_heads, of.heads))
    if of.width <= 64:  # which leave registers
        request.getfixturevalue("unassembled")
    module, args = random_attention.Attention(of), random_attention.arguments(of, seed)
    shapes = random_attention.open_sizes(of)
    compiled = kitsune_mlir.compile(module, args, target=small_gpu, matmul_precision=precision, dynamic_shapes=shapes)
    assert sum(launch["kernel"] == "attention0" for launch in compiled.plan["launches"]) == 1
    assert all(not kernel.get("spill_stores") for kernel in compiled.plan["kernels"])
    sizes = {"rows": 100, "columns": 100} if what == "tokens" else {what: 5} if what else {}
    bound = BOUNDS[of.dtype] if precision == "high" else 4e-6
    compare(module, replace(of, **sizes), Simulation(compiled, seed=seed), seed, bound)


# Whole turns for each CTA of a cluster, fewer for the last, and none for some, by masks or because columns are open.
@pytest.mark.parametrize(
    "seed, what, sizes, cluster",
    [
        (0, "", {"rows": 64, "columns": 512, "mask": "none"}, 4),
        (1, "", {"rows": 20, "columns": 300, "mask": "bias"}, 2),
        (4, "", {"heads": 2, "rows": 200, "columns": 200, "mask": "causal"}, 4),
        (9, "", {"batch": 2, "rows": 20, "columns": 300, "mask": "padding", "dtype": torch.float32}, 2),
        (45, "tokens", {"heads": 4, "key_heads": 4, "rows": 70, "columns": 70}, 2),
        (53, "columns", {"rows": 70, "columns": 200}, 4),
    ],
)
def test_columns_of_a_cluster(seed, what, sizes, cluster, always, small_gpu, monkeypatch, request):
    monkeypatch.setattr(attention_tiles, "CLUSTERS", (cluster,))
    attention_tiles.choose.cache_clear()
    if seed not in (0, 9):  # of both types, of two and of four CTAs
        request.getfixturevalue("unassembled")
    of = replace(random_attention.draw(seed, small=True, open=what), layout="apart", **sizes)
    module, args = random_attention.Attention(of), random_attention.arguments(of, seed)
    shapes = random_attention.open_sizes(of)
    compiled = kitsune_mlir.compile(module, args, target=small_gpu, dynamic_shapes=shapes)
    attention_tiles.choose.cache_clear()
    assert f"columns shared by {cluster} CTAs" in next(
        launch["computes"] for launch in compiled.plan["launches"] if launch["kernel"] == "attention0"
    )
    for columns in (of.columns, 5) if what else (of.columns,):
        fewer = {"rows": columns, "columns": columns} if what == "tokens" else {"columns": columns}
        other = replace(of, **fewer)
        compare(module, other, Simulation(compiled, seed=seed), seed, 4e-6 if of.dtype == torch.float32 else None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "pieces"])
def test_rows_of_an_open_length(dtype, always, small_gpu):
    """Keys whose rows are as long as there are columns are turned before: copies want rows of a known length."""
    torch.manual_seed(0)
    attend = Function(lambda query, key, value: (query @ key).softmax(-1) @ value)

    def tensors(columns):
        return tuple(torch.randn(shape).to(dtype) for shape in ((2, 20, 16), (2, 16, columns), (2, columns, 24)))

    sizes = torch.export.Dim("columns", min=2, max=500)
    shapes = (({}, {2: sizes}, {1: sizes}),)
    compiled = kitsune_mlir.compile(attend, tensors(50), target=small_gpu, dynamic_shapes=shapes)
    assert sum(launch["kernel"] == "attention0" for launch in compiled.plan["launches"]) == 1
    for columns in (50, 3, 131):
        args = tensors(columns)
        found = torch.as_tensor(Simulation(compiled, seed=columns)(*args)).double()
        torch.testing.assert_close(found, attend(*(x.double() for x in args)), rtol=0, atol=BOUNDS[dtype])
