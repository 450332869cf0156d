"""What ptxas says of chained kernels: no spills, no stack, products that overlap (no wgmma run one after another).
Nothing runs here, so inputs are zeros, which take no time to draw."""

import os
from collections.abc import Iterator

import gpu_steps
import pytest
import sass_waits
import torch
from sample_models import program_of
from test_gpu_accumulate import Layer, Product, layer_tensors, tensors
from torch import nn

from examples.models import meshgraphnets, nerf
from examples.models.graphcast import processor as graphcast_processor
from kitsune_mlir import precision
from kitsune_mlir.codegen import ptx, ptxas
from kitsune_mlir.planning import target

pytestmark = pytest.mark.skipif(ptxas.find() is None, reason="there is no ptxas")
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
MADE: dict[str, bytes] = {}  # cubins


@pytest.fixture(scope="module", autouse=True)
def no_sums_are_read_early() -> Iterator[None]:
    """In what ptxas made of all kernels, at the end, for they are read at once."""
    yield
    assert not sass_waits.find() or not sass_waits.early_reads(MADE)


def assembled(model: nn.Module, args: tuple, place: str, exact: str) -> list[tuple[str, ptxas.Assembled]]:
    """PTX and what ptxas made of it, for each pipeline; `place` are options of place-stages, `exact` is the precision
    of f32 products."""
    program = program_of(model.eval(), tuple(args))
    precision.give(program.module, exact)
    gpu_steps.place(program.module, "sm_90a", gpu_steps.SUMMED | {"place-stages": place})
    assert not gpu_steps.convert(program.module, "sm_90a")
    machine = target.load("sm_90a")
    texts = [ptx.to_ptx(kernel, machine) for kernel in gpu_steps.kernels(program.module)]
    return [(text, ptxas.assemble(text, machine)) for text in texts]


def check(
    model: nn.Module, args: tuple, place: str = "", exact: str = precision.HIGHEST, spilled: int = 0
) -> list[str]:
    """Every product on warpgroups, nothing in local memory but so many `spilled` bytes, no complaint. ptxas's C7510 to
    C7515 and C7520 say that wgmmas run one after another, C7508 that setmaxnreg is ignored. Gives the PTX."""
    found = assembled(model, args, place, exact)
    assert found
    for text, result in found:
        MADE[f"{os.environ['PYTEST_CURRENT_TEST']} {len(MADE)}"] = result.cubin
        assert "wgmma.mma_async" in text
        for kernel in result.kernels.values():
            assert kernel.spill_stores == spilled and kernel.spill_loads <= 3 * spilled and kernel.stack <= 2 * spilled
        assert not result.warnings
    return [text for text, _ in found]


def chunks_in(text: str) -> int:
    """Chunks of products in a kernel's code: ptxas takes time for each."""
    return text.count("wgmma.commit_group")


def chain(widths: tuple[int, ...], between: type[nn.Module], dtype: torch.dtype) -> tuple[nn.Module, tuple]:
    """Linear layers with `between` after all but the last."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        parts += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs) if between is nn.LayerNorm else between()]
    return nn.Sequential(*parts[:-1]).to(dtype), (torch.zeros(65_536, widths[0], dtype=dtype),)


@pytest.mark.parametrize(
    "widths, between, dtype",
    [
        ((64, 64, 64), nn.ReLU, BF16),
        ((72, 72, 72), nn.GELU, F16),
        ((128, 128, 128, 128), nn.SiLU, BF16),
        ((128, 128, 128), nn.LayerNorm, F16),
        ((250, 250, 250), nn.SiLU, F16),
        ((512, 512, 512), nn.GELU, BF16),
        ((512, 512, 512), nn.LayerNorm, BF16),
        ((256, 256, 256), nn.LayerNorm, BF16),
        ((256,) * 7, nn.GELU, F16),
        ((376,) * 3, nn.GELU, F16),
        ((384,) * 4, nn.GELU, F16),
        ((320,) * 3, nn.LayerNorm, BF16),
        ((64, 256, 128, 64), nn.ReLU, BF16),
        ((316, 256), nn.ReLU, BF16),  # rows of 632 bytes, which threads read
        ((350, 256, 256), nn.SiLU, BF16),
    ],
    ids=str,
)
def test_chains(widths, between, dtype):
    check(*chain(widths, between, dtype))


@pytest.mark.parametrize("widths, spilled", [((416,) * 3, 4), ((512,) * 7, 12)], ids=str)
def test_chains_with_a_register_too_few(widths, spilled):
    """In a cluster the thread that feeds has 24 registers and wants one more; round a loop over tiles that are
    exchanged the warpgroups want three more."""
    check(*chain(widths, nn.ReLU, BF16), spilled=spilled)


def test_equal_layers_stand_in_the_code_once():
    (text,) = check(*chain((64, *[256] * 6), nn.GELU, BF16))
    assert chunks_in(text) == 2 * (1 + 4 + 4)  # the first layer, those like it, and the last; each in two sets


def test_streamed_chunks_are_loops():
    """The code has two of the eight chunks of each tile: a loop copies the others."""

    class SideBySide(nn.Linear):
        def forward(self, *tiles: torch.Tensor) -> torch.Tensor:
            return torch.relu(super().forward(torch.cat(tiles, 1)))

    tiles = tuple(torch.zeros(4096, 512, dtype=BF16) for _ in range(3))
    (text,) = check(SideBySide(1536, 512).to(BF16), tiles)
    assert chunks_in(text) == 2 * len(tiles)


class Beside(nn.Module):
    """A product's tile beside many others, stored as one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 128)

    def forward(self, x, *others):
        return torch.cat([torch.relu(self.second(torch.relu(self.first(x)))), *others], 1)


def test_wide_tile_stored():
    args = torch.zeros(8192, 64, dtype=BF16), *torch.zeros(20, 8192, 128, dtype=BF16)
    check(Beside().to(BF16), args, "tile-rows=128 shape=chained")


def test_wide_product():
    check(nn.Linear(1024, 4096).to(BF16), (torch.zeros(4096, 1024, dtype=BF16),))


@pytest.mark.parametrize(
    "inputs, outputs, after, dtype",
    [(1536, 512, nn.SiLU, BF16), (128, 256, nn.ReLU, F16), (320, 1000, nn.GELU, BF16), (8192, 8192, nn.Identity, F16)],
    ids=str,
)
def test_pingpong(inputs, outputs, after, dtype):
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype)
    check(nn.Sequential(layer, after()), (torch.empty(65536 if inputs < 8192 else 8192, inputs, dtype=dtype),))


@pytest.mark.parametrize(
    "widths, between, exact",
    [
        ((128,) * 5, nn.GELU, "highest"),
        ((128,) * 5, nn.LayerNorm, "high"),
        ((256,) * 7, nn.SiLU, "highest"),
        ((256,) * 7, nn.LayerNorm, "highest"),
        ((256,) * 7, nn.GELU, "high"),
    ],
    ids=str,
)
def test_chains_of_f32(widths, between, exact):
    check(*chain(widths, between, F32), exact=exact)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


@pytest.mark.parametrize(
    "layers, exact",
    [
        ((nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 192), nn.GELU()), "high"),
        ((nn.Linear(20, 128), nn.SiLU(), Residual(nn.Linear(128, 128), nn.ReLU()), nn.Linear(128, 64)), "high"),
        ((nn.Linear(20, 96), nn.SiLU(), Residual(nn.Linear(96, 96), nn.LayerNorm(96))), "highest"),
    ],
    ids=["the last tile", "factors of a tile", "operands"],
)
def test_what_f32_keeps_in_registers(layers, exact):
    check(nn.Sequential(*layers), (torch.zeros(100_000, layers[0].in_features),), exact=exact)


@pytest.mark.parametrize("exact", ["highest", "high"])
def test_wide_product_of_f32(exact):
    check(nn.Linear(1024, 4096), (torch.zeros(4096, 1024),), exact=exact)


def test_nerf():
    check(*nerf(samples=4096, width=256, dtype=BF16))


def test_partial_sums():
    check(Product(), tensors(4096, 256, 256, BF16))


@pytest.mark.parametrize("turned", [False, True])
def test_a_tile_to_two_products(turned):
    check(Layer(256, 256, turned).bfloat16().eval(), layer_tensors(4096, 256, 256, BF16))


class Gate(nn.Module):
    """A number of each row that scales the tile that it is made of, and the tile of the product behind."""

    def __init__(self, width):
        super().__init__()
        self.first, self.gate = nn.Linear(width, width), nn.Linear(width, 1)
        self.second, self.last = nn.Linear(width, width), nn.Linear(width, 64)

    def forward(self, x):
        x = torch.relu(self.first(x))
        gate = torch.sigmoid(self.gate(x))
        return self.last(torch.tanh(self.second(x * gate)) - gate)


@pytest.mark.parametrize(
    "width, dtype, exact",
    [(64, BF16, "highest"), (128, F16, "highest"), (192, BF16, "highest"), (64, F32, "highest"), (128, F32, "high")],
    ids=str,
)
def test_gates_of_one_column(width, dtype, exact):
    check(Gate(width).to(dtype), (torch.zeros(8192, width, dtype=dtype),), exact=exact)


class GateOfColumns(nn.Module):
    """A wide tile that the epilogue of the product behind it reads: kept as words, not as what they were made of."""

    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.gate, self.value = nn.Linear(inputs, width), nn.Linear(inputs, width, bias=False)
        self.last = nn.Sequential(nn.Linear(width, outputs), nn.ReLU(), nn.Linear(outputs, 64))

    def forward(self, x):
        gate = torch.sqrt(self.gate(x).abs() + 1)
        return self.last(self.value(x) * gate)


@pytest.mark.parametrize("inputs, width, outputs", [(32, 256, 128), (64, 256, 64), (32, 192, 119)], ids=str)
def test_a_gate_of_columns(inputs, width, outputs):
    check(GateOfColumns(inputs, width, outputs).to(BF16), (torch.zeros(8192, inputs, dtype=BF16),))


class Residuals(nn.Module):
    """Two residuals, the second around one stage: tiles that are a product's operand and added later."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        first, second, third = self.layers
        x = torch.relu(first(x))
        x = x + torch.relu(second(x))
        return x + third(x)


@pytest.mark.parametrize("width, dtype", [(192, F16), (256, BF16)], ids=str)
def test_residuals(width, dtype):
    check(Residuals(width).to(dtype), (torch.zeros(65536, width, dtype=dtype),))


@pytest.mark.parametrize("model, width", [(meshgraphnets, 128), (graphcast_processor, 512)], ids=["mgn", "graphcast"])
def test_messages(model, width):
    """Rows gathered, multiplied, normalised and summed at the receivers; the sums of 64 columns are 8 additions."""
    texts = check(*model(20_000, 100_000, width, blocks=1, dtype=BF16))
    (adding,) = [text for text in texts if "red.relaxed.gpu.global.add.v4.f32" in text]
    assert adding.count("red.relaxed.gpu.global.add.v4.f32") == min(width, 256) // 64 * 8  # 512 are of two CTAs


class Ends(nn.Module):
    """A network on the rows that edges have in tables."""

    def __init__(self, widths, inner):
        super().__init__()
        self.first, self.last = nn.Linear(sum(widths), inner), nn.Linear(inner, 64)

    def forward(self, numbers, *tables):
        ends = [torch.index_select(table, 0, numbers) for table in tables]
        return self.last(torch.relu(self.first(torch.cat(ends, 1))))


@pytest.mark.parametrize("widths, registers", [((512,), 24), ((128, 192), 40)], ids=str)
def test_operands_that_threads_gather(widths, registers):
    """16 bytes a thread, without numbers of rows or slots that spill; a fence for each slot."""
    tables = [torch.zeros(60_000, width, dtype=BF16) for width in widths]
    (text,) = check(Ends(widths, 256).to(BF16), (torch.zeros(65_536, dtype=torch.int32), *tables))
    chunks = sum(widths) // 64
    assert text.count("cp.async.cg.shared.global") == text.count("cp.async.wait_group") == chunks
    assert f"setmaxnreg.dec.sync.aligned.u32 \t{registers}" in text


def test_messages_in_order():
    """The first block gathers edges as it does nodes; the last writes its edges where they were."""
    assert len(check(*meshgraphnets(218_453, 1_310_720, 128, blocks=2, dtype=BF16))) == 3
