"""Linear layers of rows that lie in another order, on a CPU and in the GPU simulator: one product each, and no more
copies than dimensions change places."""

import pytest
import torch
from decomposed_functions import TARGETS
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

BATCH, LENGTH = torch.export.Dim("batch"), torch.export.Dim("length")
OPEN = {"fixed": {}, "batch": {0: BATCH}, "length": {1: LENGTH}, "both": {0: BATCH, 1: LENGTH}}


class Turned(nn.Module):
    """What a layer of sequences does for a caller who has batches first."""

    def __init__(self, bias=True):
        super().__init__()
        self.layer = nn.Linear(24, 20, bias=bias)

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).transpose(0, 1) * 2


class SelfAttention(nn.Module):
    def __init__(self, batch_first=True, need_weights=False, heads=3):
        super().__init__()
        self.need_weights = need_weights
        self.attention = nn.MultiheadAttention(24, heads, batch_first=batch_first)
        nn.init.normal_(self.attention.in_proj_bias)

    def forward(self, x, attn_mask=None, key_padding_mask=None):
        masks = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        return self.attention(x, x, x, need_weights=self.need_weights, **masks)


class Attended(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x, x)


class Block(nn.Module):
    """Of ConvNeXt: linear layers of the channels of an image."""

    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(24), nn.Linear(24, 40), nn.Linear(40, 24)
        self.scale = nn.Parameter(torch.rand(24))

    def forward(self, x):
        y = self.narrow(torch.relu(self.wide(self.norm(x.permute(0, 2, 3, 1)))))
        return x + (self.scale * y).permute(0, 3, 1, 2)


class Shared(nn.Module):
    """Batches of products with one matrix, as they are written out, with a bias and with what is none."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(24, 7)), nn.Parameter(torch.randn(7))

    def forward(self, x):
        y = torch.bmm(x, self.weight.expand(x.shape[0], 24, 7))
        z = torch.bmm(x + 1, self.weight.unsqueeze(0).expand(x.shape[0], -1, -1))
        return y + self.bias, z + z[:, :1, :], z + 2


class Columns(nn.Module):
    """One matrix times a column of each row, as crosses of features and state spaces are written."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 24, 7))

    def forward(self, x):
        return torch.matmul(self.weight[1], torch.tanh(torch.matmul(self.weight[0].t(), x.unsqueeze(2)))).squeeze(2)


def check(model, args, target="cpu", shapes=None, others=()):
    """The model's results at the example's sizes and at others. Returns what was compiled."""
    model = model.eval()
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, args, target=target, dynamic_shapes=shapes)
        run = compiled if target == "cpu" else Simulation(compiled, seed=1)
        for given in (args, *others):
            found, expected = run(*given), model(*given)
            pairs = [(found, expected)] if torch.is_tensor(expected) else list(zip(found, expected, strict=True))
            for ours, torchs in pairs:
                if torchs is not None:
                    torch.testing.assert_close(torch.as_tensor(ours), torchs, rtol=1e-4, atol=1e-4)
    return compiled


def products(compiled):
    text = compiled.mlir("linalg")
    return text.count("linalg.matmul"), text.count("linalg.batch_matmul")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes, bias", [*((sizes, True) for sizes in OPEN), ("both", False)])
def test_rows_are_multiplied_in_the_order_they_are_in(sizes, bias, target):
    other = torch.randn(2 if 0 in OPEN[sizes] else 5, 9 if 1 in OPEN[sizes] else 7, 24)
    compiled = check(Turned(bias), (torch.randn(5, 7, 24),), target, (OPEN[sizes],), ((other,),))
    assert products(compiled) == (1, 0)


def test_turns_that_meet_leave_one_kernel():
    compiled = check(Turned(), (torch.randn(5, 7, 24),), "sm_90a")
    assert len(compiled.plan["launches"]) == 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_has_two_batches_of_products(batch_first, target):
    assert products(check(SelfAttention(batch_first), (torch.randn(5, 7, 24),), target)) == (2, 2)


@pytest.mark.parametrize("shape, heads", [((1, 1, 24), 1), ((1, 7, 24), 1), ((5, 1, 24), 1), ((5, 1, 24), 3)])
def test_attention_of_one_row_and_one_head(shape, heads):
    check(SelfAttention(heads=heads), (torch.randn(shape),))


@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_with_masks(need_weights):
    x, later, padding = (
        torch.randn(5, 7, 24),
        torch.ones(7, 7).triu(1).bool(),
        torch.arange(7) > torch.tensor([[5]] * 5),
    )
    assert products(check(SelfAttention(need_weights=need_weights), (x, later, padding))) == (2, 2)


@pytest.mark.parametrize("target", TARGETS)
def test_weights_of_attention_of_open_sizes(target):
    others = [(torch.randn(2, 9, 24),)]
    check(SelfAttention(need_weights=True), (torch.randn(5, 7, 24),), target, (OPEN["both"],), others)


def test_queries_are_copied_once():
    """What is split into heads has the layer's rows as one size, and takes the two that it is split into from x."""
    layer, x = nn.MultiheadAttention(256, 4, batch_first=True).to(torch.bfloat16).eval(), torch.randn(8, 128, 256)
    compiled = kitsune_mlir.compile(
        Attended(layer), (x.to(torch.bfloat16),), target="sm_90a", dynamic_shapes=(OPEN["both"],)
    )
    assert [launch["computes"] for launch in compiled.plan["launches"]].count("elementwise") <= 2


@pytest.mark.parametrize("sizes", ["fixed", "both"])
def test_an_encoder_layer_of_open_sizes(sizes):
    model, x = nn.TransformerEncoderLayer(24, 3, 40, batch_first=True), torch.randn(5, 7, 24)
    other = torch.randn(2 if 0 in OPEN[sizes] else 5, 9 if 1 in OPEN[sizes] else 7, 24)
    assert products(check(model, (x,), shapes=(OPEN[sizes],), others=((other,),))) == (4, 2)


def test_attention_copies_no_queries_keys_and_values():
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True).to(torch.bfloat16).eval()
    compiled = kitsune_mlir.compile(layer, (torch.randn(4, 128, 256, dtype=torch.bfloat16),), target="sm_90a")
    copies = [launch for launch in compiled.plan["launches"] if launch["computes"] in ("copy", "elementwise")]
    assert not copies


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shapes", [None, ({0: BATCH},)])
def test_layers_of_an_images_channels(shapes, target):
    others = () if shapes is None else ((torch.randn(2, 24, 5, 3),),)
    assert products(check(Block(), (torch.randn(3, 24, 5, 3),), target, shapes, others)) == (2, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_batches_with_one_matrix(target):
    assert products(check(Shared(), (torch.randn(3, 5, 24),), target)) == (2, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_columns_of_a_batch_are_rows(target):
    compiled = check(Columns(), (torch.randn(3, 24),), target, ({0: BATCH},), ((torch.randn(5, 24),),))
    assert products(compiled) == (2, 0)


def test_a_batch_of_none():
    check(Turned(), (torch.randn(0, 7, 24),))


def test_a_model_of_torch_compile():
    model, x = SelfAttention().eval(), torch.randn(5, 7, 24)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="kitsune")(x)[0], model(x)[0], rtol=1e-4, atol=1e-4)


class MixedHeads(nn.Module):
    """What talking heads do with scores."""

    def __init__(self, heads=3):
        super().__init__()
        self.before, self.after = nn.Linear(heads, heads), nn.Linear(heads, heads, bias=False)

    def forward(self, x):
        x = self.before(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        return self.after(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "is_open"), [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)]
)
def test_heads_are_mixed_where_they_lie(target, dtype, is_open, small_gpu):
    torch.manual_seed(0)
    model, x = MixedHeads(), torch.randn(2, 3, 5, 12)
    wanted = model(x)
    model, x = model.to(dtype), x.to(dtype)
    shapes = ({0: torch.export.Dim("b")},) if is_open else None
    goal = "cpu" if target == "cpu" else small_gpu
    compiled = kitsune_mlir.compile(model, (x,), target=goal, dynamic_shapes=shapes)
    found = compiled(x) if target == "cpu" else Simulation(compiled)(x)
    bounds = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(torch.as_tensor(found).float(), wanted, **bounds)
    if target != "cpu":
        assert len(compiled.plan["launches"]) == 3


SUMS = {
    "turned back": lambda x: x.view(2, 3, 5, 8).permute(0, 1, 3, 2).sum(1).transpose(1, 2),
    "kept": lambda x: x.view(2, 3, 5, 8).permute(3, 0, 2, 1).sum(-1, keepdim=True),
    "of two dimensions": lambda x: x.view(2, 3, 5, 8).permute(3, 1, 0, 2).sum((1, 2)),
    "of a part of one": lambda x: x.permute(2, 0, 1).reshape(8, 2, 15).sum(1),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SUMS)
def test_few_are_summed_before_they_are_turned(name, target):
    torch.manual_seed(0)
    function, x = SUMS[name], torch.randn(6, 5, 8)
    compiled = kitsune_mlir.compile(Function(lambda x: function(x.sin())), (x,), target=target)
    found = (compiled if target == "cpu" else Simulation(compiled, seed=1))(x)
    torch.testing.assert_close(torch.as_tensor(found), function(x.sin()))
    graph = compiled.mlir("linalg")
    total = graph.index('"reduction"')
    assert "linalg.transpose" not in graph[:total]


def test_windows_of_an_open_batch_are_turned_once():
    """Windows of an image, of whose layer heads are split off: what an open size leaves of itself is a number."""

    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 48)

        def forward(self, x):
            rows = x.view(-1, 2, 3, 4, 3, 16).transpose(2, 3).reshape(-1, 9, 16)
            q, k, v = self.layer(rows).view(-1, 9, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
            return (q.exp() @ k.mT).relu() @ v

    model, args = Windows(), (torch.randn(2, 6, 12, 16),)
    known, compiled = (
        kitsune_mlir.compile(model, args, dynamic_shapes=shapes) for shapes in (None, ({0: torch.export.Dim("batch")},))
    )
    assert compiled.mlir("linalg").count("linalg.transpose") == known.mlir("linalg").count("linalg.transpose")
    x = torch.randn(5, 6, 12, 16)
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [16, 48])
def test_windows_are_turned_where_they_are_narrower(columns):
    """The places of a window lie apart in an image: attention does not read them there, and its operands are copies."""
    layer = nn.Linear(24, columns)

    def attend(x):
        rows = x.view(-1, 2, 3, 4, 3, 24).transpose(2, 3).reshape(-1, 9, 24)
        y = layer(rows).view(-1, 9, 2, columns // 2).transpose(1, 2)
        return (y @ y.mT).softmax(-1) @ y

    x = torch.randn(2, 6, 12, 24)
    compiled = kitsune_mlir.compile(Function(attend), (x,))
    graph = compiled.mlir("linalg")
    (turned, *_) = [line for line in graph.splitlines() if "linalg.transpose" in line and "x2x3x4x" in line]
    assert ("x3x24xf32" in turned) == (columns > 24)
    torch.testing.assert_close(compiled(x), attend(x).detach(), rtol=1e-5, atol=1e-5)
