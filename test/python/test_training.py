"""torch.compile(model, backend="kitsune") with gradients: both passes compiled, results and gradients as torch's."""

import warnings

import pytest
import torch
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from examples.models import SMALL
from kitsune_mlir import torch_backend
from kitsune_mlir.frontend import attention, attention_gradients
from kitsune_mlir.tools.gpusim import Simulation


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_backend._warn.cache_clear()


def gradients(call, module, args):
    """Results, and gradients by parameters and inputs, for results' gradients that are drawn."""
    for parameter in module.parameters():
        parameter.grad = None
    given = [arg.detach().clone().requires_grad_(arg.is_floating_point()) for arg in args]
    leaves = torch.utils._pytree.tree_leaves(call(*given))
    results = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    torch.manual_seed(2)
    torch.autograd.backward(results, [torch.randn_like(result) for result in results])
    found = [*results, *(p.grad for p in module.parameters()), *(arg.grad for arg in given)]
    return [tensor.detach() for tensor in found if tensor is not None]


def trains(module, *args, tolerance=1e-5):
    """Numbers that are nothing beside the largest gradient count as one ten-thousandth of it."""
    wanted = gradients(module, module, args)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="kitsune backend")
        found = gradients(torch.compile(module, backend="kitsune"), module, args)
    largest = max(float(b.abs().max()) for b in wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * (b.abs().max() + 1e-4 * largest)


@pytest.mark.parametrize("name", ["nerf", "dlrm", "meshgraphnets", "transformer", "resblock", "gat"])
def test_sample_models(name):
    torch.manual_seed(0)
    model, args = SMALL[name](torch.float32)
    trains(model, *(arg for arg in args if isinstance(arg, torch.Tensor)), tolerance=1e-4)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(6, 8, 3, padding=1, stride=2), (2, 6, 9, 8)),
        (nn.Conv2d(8, 12, (3, 5), padding=(0, 2), groups=4), (2, 8, 9, 8)),
        (nn.Conv2d(8, 8, 5, padding=2, groups=8), (2, 8, 9, 8)),
        (nn.Conv1d(4, 6, 5, padding=2, stride=3, dilation=2), (2, 4, 40)),
        (nn.Conv3d(2, 4, 3, padding=1, stride=2), (2, 2, 5, 6, 7)),
        (nn.Conv2d(4, 8, 1, stride=2), (2, 4, 8, 9)),
        (nn.ConvTranspose2d(4, 8, 3, padding=1, stride=2, output_padding=1), (2, 4, 5, 6)),
        (nn.ConvTranspose2d(4, 8, 3, stride=2, groups=2), (2, 4, 5, 6)),
        (nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (2, 4, 8, 8)),
        (nn.MaxPool2d(3, 2, 1), (2, 4, 9, 8)),
        (nn.MaxPool2d(3, 2, ceil_mode=True), (2, 4, 8, 9)),
        (nn.MaxPool1d(3, 1, dilation=2), (2, 4, 12)),
        (nn.MaxPool3d(2), (2, 2, 4, 6, 4)),
        (nn.AdaptiveMaxPool2d((2, 3)), (2, 2, 5, 7)),
        (nn.AvgPool2d(3, 2, 1), (2, 4, 9, 8)),
        (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 4, 8, 8)),
        (nn.AvgPool3d(2), (2, 2, 4, 6, 4)),
        (nn.AvgPool1d(3), (2, 3, 9)),
        (nn.AdaptiveAvgPool2d((3, 2)), (2, 2, 8, 6)),
        (nn.AdaptiveAvgPool3d(2), (2, 2, 4, 5, 6)),
        (nn.Upsample(scale_factor=2), (2, 3, 4, 5)),
        (nn.Upsample(size=(7, 9)), (2, 3, 4, 5)),
        (nn.ReplicationPad2d((1, 2, 0, 3)), (2, 3, 4, 5)),
        (nn.GroupNorm(2, 4), (3, 4, 5, 6)),
        (nn.LayerNorm(24), (7, 24)),
        (nn.RMSNorm(24), (7, 24)),
    ],
    ids=str,
)
def test_layers(layer, shape):
    torch.manual_seed(0)
    trains(layer, torch.randn(shape))


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_samples(mode, padding_mode):
    torch.manual_seed(0)
    corners = padding_mode == "border"
    sampled = Function(
        lambda x, grid: F.grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=corners)
    )
    trains(sampled, torch.randn(2, 3, 5, 6), torch.rand(2, 4, 7, 2) * 3 - 1.5)
    if padding_mode != "border":  # which is along a third dimension as along two
        trains(sampled, torch.randn(2, 3, 4, 5, 3), torch.rand(2, 4, 2, 3, 3) * 3 - 1.5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(20, 6, mode=mode, padding_idx=None if mode == "max" else 3)
    trains(bag, torch.randint(0, 20, (5, 4)))
    trains(bag, torch.randint(0, 20, (11,)), torch.tensor([0, 2, 2, 7]))
    if mode == "sum":
        weighed = Function(lambda i, w, t: F.embedding_bag(i, t, mode="sum", per_sample_weights=w))
        trains(weighed, torch.randint(0, 20, (5, 4)), torch.randn(5, 4), torch.randn(20, 6))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_distances(p):
    torch.manual_seed(0)
    trains(Function(lambda x, y: torch.cdist(x, y, p)), torch.randn(2, 5, 3), torch.randn(2, 4, 3))


def test_norms_of_weights():
    torch.manual_seed(0)
    trains(nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), torch.randn(3, 6))


def test_numbers_have_one_element():
    trains(Function(lambda x: (torch.cummax(x, 0)[0], x.max(0)[0], x.topk(1, 0)[0])), torch.tensor(2.0))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [4, 2])
def test_attention(keys, causal):
    torch.manual_seed(0)
    attend = Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=keys != 4))
    trains(attend, torch.randn(2, 4, 9, 8), torch.randn(2, keys, 9, 8), torch.randn(2, keys, 9, 8))


@pytest.mark.parametrize(
    ("kind", "mask"),
    [("flash", None), *((kind, mask) for kind in ("cudnn", "efficient") for mask in (None, "numbers", "bools"))],
)
def test_attention_of_gpus(kind, mask):
    """What AOTAutograd has of attention on a GPU, in f64."""
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(size, dtype=torch.double, requires_grad=True) for size in ((2, 4, 9, 8), (2, 2, 7, 8), (2, 2, 7, 6))
    )
    masks = {None: None, "numbers": torch.randn(2, 4, 9, 7).double().requires_grad_(), "bools": torch.rand(9, 7) > 0.3}
    given = masks[mask]
    plain = F.scaled_dot_product_attention(q, k, v, given, enable_gqa=True)
    grad = torch.randn_like(plain)
    wanted = torch.autograd.grad(plain, [q, k, v] + ([given] if mask == "numbers" else []), grad)
    with torch.no_grad():
        if kind == "flash":
            out, sums, *_ = attention.flash_attention(q, k, v)
            found = attention_gradients.flash(grad, q, k, v, out, sums, None, None, 9, 7, 0.0, False, None, None)
        elif kind == "cudnn":
            out, sums, *_ = attention.cudnn_attention(q, k, v, given, True)
            state = (None, None, given, None, None, 9, 7, 0.0, False)
            found = attention_gradients.cudnn(grad, q, k, v, out, sums, *state)
            assert sums.shape == (2, 4, 9, 1)
        else:
            out, sums, *_ = attention.efficient_attention(q, k, v, given, True)
            found = attention_gradients.efficient(grad, q, k, v, given, out, sums, None, None, 0.0, [True] * 4)
            assert sums.shape == (2, 4, 32)
    torch.testing.assert_close(out, plain)
    for a, b in zip(found, wanted, strict=False):
        torch.testing.assert_close(a, b)


def test_open_batches():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    compiled = torch.compile(model, backend="kitsune", dynamic=True)
    for rows in (5, 9, 2):
        x = torch.randn(rows, 6)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="kitsune backend")
            found = gradients(compiled, model, [x])
        for a, b in zip(found, gradients(model, model, [x]), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_two_passes_before_the_gradients():
    """What a pass keeps for its gradients is its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    compiled = torch.compile(model, backend="kitsune")
    first, second = (torch.randn(4, 6, requires_grad=True) for _ in range(2))
    (compiled(first).square().sum() + compiled(second).sum()).backward()
    found = [first.grad, second.grad]
    wanted = torch.autograd.grad(model(first).square().sum() + model(second).sum(), [first, second])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_a_loss_falls_as_torchs():
    def losses(call, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            found.append(float(loss.detach()))
        return found

    torch.manual_seed(0)
    x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)))
    ours = losses(torch.compile(models[0], backend="kitsune"), models[0])
    assert ours == pytest.approx(losses(models[1], models[1]), rel=1e-3) and ours[-1] < ours[0]
    torch.testing.assert_close(models[0][1].running_mean, models[1][1].running_mean, rtol=1e-3, atol=1e-4)


def test_what_is_dropped_is_drawn_by_torchs_seed():
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.25), nn.Linear(64, 8))
    compiled, x = torch.compile(model, backend="kitsune"), torch.randn(32, 16)
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        model.zero_grad()
        y = compiled(x)
        y.sum().backward()
        found.append((y.detach(), model[0].weight.grad.clone()))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert not torch.equal(found[0][0], found[2][0])


def test_gradients_are_dropped_where_results_are():
    x = torch.randn(64, 16, requires_grad=True)
    y = torch.compile(lambda x: F.dropout(x, 0.25, True), backend="kitsune")(x)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0) and 0.65 < (y != 0).float().mean() < 0.85
    torch.testing.assert_close(x.grad.max(), torch.tensor(1 / 0.75))


def test_weights_of_attention_that_are_dropped():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.5, batch_first=True)
    x = torch.randn(2, 9, 32, requires_grad=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="kitsune backend")
        y = torch.compile(layer, backend="kitsune")(x)
        y.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_random_numbers():
    @torch.compile(backend="kitsune")
    def draw(x):
        whole = torch.randperm(10), torch.randint(0, 5, (6,))
        return torch.rand_like(x), torch.randn(500, 400), torch.bernoulli(torch.full((500, 400), 0.2)), *whole

    with torch.no_grad():
        torch.manual_seed(0)
        uniform, normal, ones, order, whole = draw(torch.ones(500, 401))
    assert 0 <= uniform.min() and uniform.max() < 1
    counts = torch.histc(uniform, 64, 0, 1)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 120  # of 63 degrees of freedom
    u = uniform.double().flatten() - 0.5
    for apart in (1, 2, 3, 401):
        assert (u[apart:] * u[:-apart]).mean().abs() * 12 < 0.01
    assert normal.mean().abs() < 0.01 and abs(float((normal**4).mean()) - 3) < 0.15
    assert abs(float(ones.mean()) - 0.2) < 0.01
    assert sorted(order.tolist()) == list(range(10)) and 0 <= whole.min() and whole.max() < 5


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_numbers_of_several_open_dimensions(accumulate, target):
    """As those of tokens of an open batch, whose gradients are summed in a table."""
    torch.manual_seed(0)

    def put(numbers, rows):
        return torch.zeros(40, 8).index_put((numbers,), rows, accumulate)

    sizes = {d: torch.export.Dim(name) for d, name in enumerate(("batch", "tokens"))}
    args = torch.randperm(40)[:30].view(6, 5), torch.randn(6, 5, 8)
    compiled = kitsune_mlir.compile(Function(put), args, target=target, dynamic_shapes=((sizes, sizes),))
    for rows, tokens in ((6, 5), (4, 5), (5, 3)):
        numbers, values = (arg[:rows, :tokens].contiguous() for arg in args)
        found = (compiled if target == "cpu" else Simulation(compiled))(numbers, values)
        assert torch.equal(found, put(numbers, values))


def test_tokens_of_open_batches():
    torch.manual_seed(0)
    table = nn.Embedding(20, 8, padding_idx=0)
    compiled = torch.compile(table, backend="kitsune", dynamic=True)
    for rows, tokens in ((6, 5), (3, 4)):
        numbers = torch.randint(0, 20, (rows, tokens))
        found, wanted = (gradients(call, table, [numbers]) for call in (compiled, table))
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_sizes_that_a_trace_settles():
    """Two tokens of open lengths: torch finds out while it traces that there can be no others, once it has met them."""

    def count(tokens, shares, bias):
        batch, length = tokens.shape
        numbers = torch.arange(batch)[:, None].expand(batch, length)
        found = []
        for given in (shares, None):  # the ones are made when the length is known
            one = torch.ones(batch, length) if given is None else given
            found.append(torch.zeros(batch, 9).index_put((numbers, tokens), one, accumulate=True) + bias)
            pairs = torch.zeros(9, 9).index_put((tokens[:, :-1], tokens[:, 1:]), torch.ones(()), accumulate=True)
            found.append(torch.triu(pairs + pairs.T))
        return found

    torch._dynamo.reset()
    compiled, bias = torch.compile(count, backend="kitsune", dynamic=True), torch.randn(9, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in ((2, 5), (1, 2)):
            args = torch.randint(0, 9, shape), torch.rand(shape), bias
            for found, wanted in zip(compiled(*args), count(*args), strict=True):
                torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, at: x[torch.arange(x.shape[0])[:, None], :, at],  # written by numbers of dimensions that are apart
        lambda x, at: torch.sub(*torch.cat([x, x.sin()]).chunk(2)),  # of a batch and another one
    ],
    ids=["columns", "halves"],
)
def test_open_batches_that_are_taken_apart(function):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="kitsune", dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows, columns, taken in ((2, 9, 5), (3, 7, 4)):
            at, given = torch.randint(0, columns, (rows, taken)), torch.randn(rows, 3, columns)
            inputs = [given.clone().requires_grad_() for _ in range(2)]
            found, wanted = (call(x, at) for call, x in zip((compiled, function), inputs, strict=True))
            torch.testing.assert_close(found, wanted)
            for result in (found, wanted):
                (result * torch.arange(result.numel()).view(result.shape)).sum().backward()
            torch.testing.assert_close(inputs[0].grad, inputs[1].grad)


def test_gradients_of_distances_between_few_rows_far_away():
    """Euclid's, of rows near one another: by differences, as torch takes them, and by no product."""
    torch._dynamo.reset()
    rows = torch.randn(6, 3) + 1000
    found, exact = (rows.to(kind, copy=True).requires_grad_() for kind in (torch.float32, torch.float64))

    def energy(x):
        return torch.exp(-0.5 * torch.cdist(x, x).square()).sum()

    torch.compile(energy, backend="kitsune")(found).backward()
    energy(exact).backward()
    torch.testing.assert_close(found.grad.double(), exact.grad, rtol=1e-4, atol=1e-4)
