"""Both passes of a training step on the simulated GPU, in 16 bits: no farther from float64 than torch's own."""

import copy

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import make_boxed_func
from torch._subclasses.fake_tensor import unset_fake_temporarily

from kitsune_mlir import torch_backend
from kitsune_mlir.compiler import compile_program
from kitsune_mlir.passes import schedule_back_to_back
from kitsune_mlir.tools.gpusim import Simulation

BF16 = torch.bfloat16


@pytest.fixture
def plans(monkeypatch):
    """Has graphs from AOTAutograd run on the simulated GPU; gives the names of their kernels."""
    torch._dynamo.reset()
    found = []

    def compiled(gm, example_inputs, **_):
        with unset_fake_temporarily():
            graph = torch_backend.import_aot_graph(gm, "torch.compile", {}, example_inputs)
            program = compile_program(graph.program, "sm_90a")
        found.append([launch["kernel"] for launch in program.plan["launches"]])
        simulation = Simulation(program)

        def run(*values):
            return graph.completed(simulation(*(values[i].detach() for i in graph.taken)), values)

        return make_boxed_func(run)

    monkeypatch.setattr(torch_backend, "_compile", compiled)
    return found


def gradients(call, module, x):
    for parameter in module.parameters():
        parameter.grad = None
    x = x.detach().clone().requires_grad_()
    y = call(x)
    torch.manual_seed(2)
    y.backward(torch.randn(y.shape).to(y.dtype))
    return [y.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]


def check(module, x, call=None):
    """By the norm of each tensor; numbers that are nothing beside the others are measured by these."""
    exact = copy.deepcopy(module).double()
    wanted = gradients(exact, exact, x.double())
    plain = gradients(module, module, x)
    found = gradients(call or torch.compile(module, backend="kitsune"), module, x)
    largest = max(float(each.norm()) / each.numel() ** 0.5 for each in wanted)
    for ours, torchs, right in zip(found, plain, wanted, strict=True):
        scale = float(right.norm()) + 1e-2 * largest * right.numel() ** 0.5
        mine, other = (float((each.double() - right).norm()) / scale for each in (ours, torchs))
        assert mine <= 1.5 * other + 5e-3


def test_norms(plans):
    """A sum over rows has its own of what the rows' kernel computes: that writes one tensor of 16 bits."""
    torch.manual_seed(0)
    check(nn.Sequential(nn.Linear(24, 136), nn.LayerNorm(136)).to(BF16), torch.randn(600, 24, dtype=BF16))
    backward = plans[-1]
    assert backward[0].startswith("rows") and sum(name.startswith("rows") for name in backward) == 1


def test_attention(plans):
    """Its first pass is one kernel, which the logarithms of its rows' sums leave, too."""
    torch.manual_seed(0)

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.taken = nn.Linear(64, 192)

        def forward(self, x):
            q, k, v = self.taken(x).unflatten(-1, (3, 2, 32)).permute(2, 0, 3, 1, 4)
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    check(Attending().to(BF16), torch.randn(2, 150, 64, dtype=BF16))
    assert "attention0" in plans[0]


class Grouped(nn.Module):
    """Attention of heads of which several have keys and values in common."""

    def __init__(self, heads, kept, width, causal, mask=None):
        super().__init__()
        self.sizes, self.width, self.causal, self.mask = [heads * width, *[kept * width] * 2], width, causal, mask
        self.taken = nn.Linear(32, sum(self.sizes), bias=False)

    def forward(self, x):
        heads = (part.unflatten(-1, (-1, self.width)).transpose(1, 2) for part in self.taken(x).split(self.sizes, -1))
        mask = self.mask.to(x.dtype) if self.mask is not None and self.mask.is_floating_point() else self.mask
        found = nn.functional.scaled_dot_product_attention(*heads, mask, is_causal=self.causal, enable_gqa=True)
        return found.transpose(1, 2).flatten(2)


def places(rows):
    return torch.arange(rows)[:, None] - torch.arange(rows)


# Tiles that do not end with rows, keys that several heads have, rows that are masked throughout, numbers that are added
# to scores; so wide that each gradient is a kernel of its own; and whose results lie side by side as they are written.
@pytest.mark.parametrize(
    ("tokens", "width", "heads", "kept", "causal", "mask", "dtype", "kernels"),
    [
        (150, 64, 2, 2, True, None, BF16, 2),
        (100, 64, 4, 2, True, None, BF16, 2),
        (130, 40, 2, 2, False, places(130) % 7 > 2, torch.float16, 2),
        (70, 80, 2, 2, False, places(70) / 50, BF16, 3),
        (128, 32, 2, 2, False, places(128) * (places(128) > 3) < 40, BF16, 2),
    ],
)
def test_gradients_of_attention_keep_scores(
    tokens, width, heads, kept, causal, mask, dtype, kernels, plans, monkeypatch
):
    torch.manual_seed(0)
    monkeypatch.setattr(schedule_back_to_back._Kernels, "is_faster", lambda kernels: True)
    if mask is not None and mask.dtype == torch.bool:
        mask[5] = False
    check(Grouped(heads, kept, width, causal, mask).to(dtype), torch.randn(2, tokens, 32, dtype=dtype))
    assert sum(name.startswith("back_to_back") for name in plans[-1]) == kernels


@pytest.mark.parametrize(("dims", "shapes"), [((0,), [(2, 70), (3, 70)]), ((0, 1), [(2, 130), (3, 64), (4, 33)])])
def test_gradients_of_attention_of_open_sizes(dims, shapes, plans, monkeypatch):
    """One program has all sizes."""
    torch.manual_seed(0)
    monkeypatch.setattr(schedule_back_to_back._Kernels, "is_faster", lambda kernels: True)
    module = Grouped(4, 2, 64, causal=True).to(BF16)
    compiled = torch.compile(module, backend="kitsune")

    def call(x):
        for dim in dims:
            torch._dynamo.mark_dynamic(x, dim)
        return compiled(x)

    for shape in shapes:
        check(module, torch.randn(*shape, 32, dtype=BF16), call)
    assert [sum(name.startswith("back_to_back") for name in plan) for plan in plans] == [0, 2]


def test_images(plans):
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 3, groups=2),
    )
    check(nn.Sequential(*layers).to(BF16), torch.randn(2, 8, 9, 8, dtype=BF16))
