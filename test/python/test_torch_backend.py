"""torch.compile(model, backend="kitsune"): found by name, right, and eager where it cannot help."""

import math
import warnings

import pytest
import torch
from torch import nn

from examples.models import SMALL
from kitsune_mlir import compiler, torch_backend
from kitsune_mlir.bench import sides
from kitsune_mlir.frontend.aot_graph import import_aot_graph


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_backend._warn.cache_clear()


def close(found, wanted, tolerance=1e-5):
    leaves = torch.utils._pytree.tree_leaves
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert (a.double() - b.double()).abs().max() <= tolerance * b.double().abs().max()


def test_is_found_by_entry_point():
    assert "kitsune" in torch._dynamo.list_backends()


@pytest.mark.parametrize("name", ["mlp", "transformer", "llama-decode"])
def test_results(name):
    model, args = SMALL[name](torch.float32)
    compiled = torch.compile(model, backend="kitsune", fullgraph=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="kitsune backend")
        close(compiled(*args), model(*args))


def test_products_are_as_precise_as_torch_is_set(monkeypatch):
    """At the time of compilation: three tf32 products for one of f32, or one."""
    monkeypatch.setattr("kitsune_mlir.planning.cut._apart_us", lambda *stage: math.inf)  # a chain in any case
    made, compile_program = [], compiler.compile_program
    monkeypatch.setattr(
        compiler, "compile_program", lambda *given, **asked: made.append(compile_program(*given, **asked)) or made[-1]
    )
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    counts = {}
    for setting in ("highest", "high", "medium"):
        torch._dynamo.reset()
        with sides.matmul_precision(setting), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a GPU it then runs eagerly
            options = {"target": "sm_90a", "deterministic": setting == "high"}
            torch.compile(model, backend="kitsune", options=options)(torch.randn(64, 32))
        assert ("deterministic_us" in made[-1].plan) == (setting == "high")
        assert made[-1].plan.get("matmul_precision", "highest") == setting
        counts[setting] = made[-1].ptx.count("wgmma.mma_async")
    assert counts["highest"] == 3 * counts["high"] == 3 * counts["medium"] > 0


def test_constants_of_the_graph_keep_their_values():
    def assign(x):
        x[:, 0] = 3
        return x * 2

    compiled = torch.compile(assign, backend="kitsune")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="kitsune backend")
        x = torch.randn(4, 5)
        ours, plain = x.clone(), x.clone()
        close(compiled(ours), assign(plain))
        close(ours, plain)


def test_sees_weights_that_change_in_place():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    compiled = torch.compile(model, backend="kitsune")
    x = torch.randn(4, 8)
    with torch.no_grad():
        first = compiled(x)
        model[0].weight.mul_(2.0)
        close(compiled(x), model(x))
        assert not torch.equal(compiled(x), first)


class Frozen(nn.Module):
    """Weights, one of which is computed of others, a buffer that stays and one that a call changes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.register_buffer("scale", torch.full((8,), 2.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return (self.layers[0](x) + self.layers[1](x.flip(0)) * self.scale.exp()) + self.calls


def test_tensors_that_the_model_makes_on_its_device(monkeypatch):
    """On a GPU the graph names it wherever a tensor is made."""

    def on_a_gpu(gm, *rest):
        for node in gm.graph.nodes:
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda")}
        return import_aot_graph(gm, *rest)

    def masked(x):
        mask = x.new_ones((), dtype=torch.bool) & (torch.arange(4, device=x.device) > 1)
        return x.masked_fill(mask, 0.0) + torch.zeros(4, device=x.device)

    monkeypatch.setattr(torch_backend, "import_aot_graph", on_a_gpu)
    x = torch.randn(3, 4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        close(torch.compile(masked, backend="kitsune")(x), masked(x))


def test_weights_that_stay_as_they_are():
    torch.manual_seed(0)
    model, x = Frozen().eval(), torch.randn(20, 8)
    frozen = torch.compile(model, backend="kitsune", options={"freeze": True})
    with torch.no_grad():
        for _ in range(3):
            found, calls = frozen(x), model.calls.clone()
            model.calls -= 1
            torch.testing.assert_close(found, model(x))
            assert model.calls == calls
        before = frozen(x)
        model.layers[0].weight.zero_()  # is not seen, but what calls change is
        torch.testing.assert_close(frozen(x), before + 1)


def test_writes_what_the_model_mutates():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            return x * self.seen

    ours, plain = Counter(), Counter()
    compiled = torch.compile(ours, backend="kitsune")
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(5, 4)
            close(compiled(x), plain(x))
            close(ours.seen, plain.seen)


def test_what_cannot_be_compiled_warns_once():
    def function(x):
        return torch.nn.functional.fractional_max_pool3d(x, 2, output_size=2, _random_samples=places)

    places, x = torch.rand(1, 1, 3), torch.randn(1, 1, 4, 4, 4, requires_grad=True)
    with pytest.warns(UserWarning, match="fractional_max_pool3d") as caught:
        torch.compile(function, backend="kitsune")(x).sum().backward()
        torch._dynamo.reset()
        torch.compile(function, backend="kitsune")(x)
    assert len([warning for warning in caught if "kitsune" in str(warning.message)]) == 1
    close(x.grad, torch.autograd.grad(function(x).sum(), x)[0])


def test_what_cannot_be_compiled_runs_eagerly():
    def function(x):
        return torch.histogram(x, 4)[0] + 1

    x = torch.randn(8)
    with torch.no_grad(), pytest.warns(UserWarning, match="histogram.bin_ct at .*test_torch_backend.py:"):
        close(torch.compile(function, backend="kitsune")(x), function(x))


def compiled_whole(function, *calls):
    """Each call gives what torch gives, numbers as numbers, and no part of the function runs as torch runs it."""
    compiled = torch.compile(function, backend="kitsune", fullgraph=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="kitsune backend")
        for args in calls:
            found, wanted = compiled(*args), function(*args)
            for ours, plain in zip(found, wanted, strict=True):
                assert type(ours) is type(plain)
                if isinstance(plain, torch.Tensor):
                    close(ours, plain)
                else:
                    assert ours == plain


def test_numbers_that_vary_are_passed():
    """The second value of an argument makes it one that may vary, and is no size of any tensor."""
    x = torch.randn(4, 8)
    compiled_whole(lambda x, n: (x * (n % 4) + n // 2, torch.full((8,), n) + x), (x, 2), (x, -3), (x, 5))


def test_complex_numbers_within_the_model():
    turns = torch.polar(torch.ones(5, 4), torch.rand(5, 4))

    def rotated(x, turns):
        y = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return (torch.view_as_real(y * turns).flatten(-2),)

    compiled_whole(rotated, (torch.randn(2, 5, 8), turns), (torch.randn(2, 5, 8), turns.conj()))


def test_results_that_are_numbers():
    calls = [(torch.randn(rows, 8), number) for rows, number in ((4, 2), (7, 3), (9, 5))]
    compiled_whole(lambda x, n: (x + 1, x.shape[0] // 2, x * n, n + 1), *calls)


def test_sizes_that_are_numbers():
    """Which no tensor has: they are passed as the sizes of tensors that have no elements."""
    x = torch.randn(4, 8)
    compiled_whole(lambda x, n: (x.repeat(n, 1), x.new_ones((n, 3)) * n), *((x, n) for n in (2, 3, 5)))


def test_views_of_one_argument():
    def function(x, y):
        x.add_(1)
        return (x + y,)

    ours = torch.randn(4, 8)
    plain = ours.clone()
    compiled = torch.compile(function, backend="kitsune")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="kitsune backend")
        close(compiled(ours[:2], ours[1:3]), function(plain[:2], plain[1:3]))
    close(ours, plain)


def test_layers_that_torch_computes_by_one_operator():
    layer = nn.TransformerEncoderLayer(16, 2, 32, norm_first=True, activation="gelu", batch_first=True).eval()
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    x = torch.randn(2, 5, 16)
    compiled_whole(lambda x: (layer(x, src_key_padding_mask=hidden),), (x,))
    torch._dynamo.reset()
    compiled_whole(lambda x, y: layer.self_attn(x, y, y, key_padding_mask=hidden), (x, x + 1))


def test_control_flow_runs_eagerly():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    x = torch.randn(4, 8)
    with torch.no_grad(), pytest.warns(UserWarning, match="the control flow of cond at .*test_torch_backend.py:"):
        close(torch.compile(function, backend="kitsune")(x), function(x))


def test_other_shapes_and_dynamic_shapes():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).eval()
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="kitsune", dynamic=dynamic)
        with torch.no_grad():
            for rows in (4, 6, 10):
                x = torch.randn(rows, 8)
                close(compiled(x), model(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"tile": 3}, "kitsune backend has no option 'tile'"), ({"target": "sm_7"}, "unknown target 'sm_7'")],
)
def test_bad_options_are_errors(options, message):
    compiled = torch.compile(nn.Linear(2, 2), backend="kitsune", options=options)
    with torch.no_grad(), pytest.raises(Exception, match=message):
        compiled(torch.randn(1, 2))


def test_constants_have_known_sizes(monkeypatch):
    """Also where other sizes could be open."""
    found, imported = [], torch_backend.import_aot_graph

    def imports(*args):
        found.append(imported(*args))
        return found[-1]

    monkeypatch.setattr(torch_backend, "import_aot_graph", imports)
    with torch.no_grad():
        torch.compile(lambda x: x[:, [0, 2]] * 2, backend="kitsune", dynamic=True)(torch.randn(3, 4))
    assert [argument.spec.shape for argument in found[0].program.arguments if argument.kind == "constant"] == [(2,)]
