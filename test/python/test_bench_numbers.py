"""What kitsune bench counts and compares: errors, work, bytes; and the cases it knows."""

import time

import pytest
import torch
from torch import nn

from kitsune_mlir.bench import cases, check, dram, floor, networks, shapes, sides
from kitsune_mlir.bench.floor import Rates
from kitsune_mlir.bench.shapes import Chain, Layer
from kitsune_mlir.errors import UserError
from kitsune_mlir.planning import target


def test_results_that_are_not_written_are_found():
    stale = torch.ones(4)
    assert check.poisoned_run(lambda: [stale], [])[0].isnan().all()
    held = torch.ones(4)
    assert check.poisoned_run(lambda: [held[1:]], [held])[0].tolist() == [1, 1, 1]
    one = torch.ones(1)
    assert check.poisoned_run(lambda: [one.expand(4)], [])[0].isnan().all()


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([float("nan"), 4.0], [3.0, 4.0], float("inf")),
        ([float("nan"), 4.0], [float("nan"), 4.0], 0.0),
        ([float("inf"), 4.0], [float("inf"), 4.0], 0.0),
        ([3.0], [3.0, 4.0], float("inf")),
        ([0.5, 0.0], [0.0, 0.0], 0.5),
    ],
)
def test_relative_error(monkeypatch, found, wanted, error):
    monkeypatch.setattr(check, "CHUNK", 1)
    assert check.relative_error([torch.tensor(found)], [torch.tensor(wanted).double()]) == pytest.approx(error)


def test_eagers_error_widens_the_bound_but_not_without_end():
    results = [torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.int64)]
    assert check.bound(results, None) == 1e-2
    assert check.bound(results, 1e-3) == 1e-2
    assert check.bound(results, 2e-2) == 4e-2
    assert check.bound(results, float("inf")) == pytest.approx(0.1)


def test_what_is_right_and_fast_for_tf32():
    f32, f64 = [torch.zeros(1)], [torch.zeros(1, dtype=torch.float64)]
    assert check.bound(f32, None) == 1e-5
    with sides.matmul_precision("high"):
        assert check.bound(f32, None) == 5e-4 and check.bound(f64, None) == 1e-10
        assert check.bound(f32, 1e-3) == 2e-3 and check.bound(f32, 1.0) == pytest.approx(5e-3)
    hopper = target.load("sm_90a")
    rates = {
        (kind, precision): Rates.of(hopper, kind, precision).tflops
        for kind in (torch.float32, torch.float64, torch.bfloat16)
        for precision in ("highest", "medium")
    }
    most = hopper.tensor_tflops
    assert list(rates.values()) == [most / 6, most / 2, most / 6, most / 6, most, most]


def test_fresh_inputs_stay_in_range():
    args = (torch.linspace(1, 2, 1000), [torch.arange(5)], torch.empty(0))
    before = args[0].clone()
    check.refresh(args, seed=3)
    assert not torch.equal(args[0], before) and 1 <= args[0].min() and args[0].max() <= 2
    assert args[1][0].tolist() == [0, 1, 2, 3, 4]


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 8)
        self.unused = nn.Linear(100, 100)
        self.linear = nn.Linear(8, 2)

    def forward(self, rows):
        return self.linear(self.table(rows))


def test_work_is_what_must_be_done():
    work = floor.count(Lookup(), (torch.arange(10),))
    assert work.operations == 2 * 10 * 8 * 2
    assert work.bytes == 10 * 8 + 10 * 8 * 4 + (8 * 2 + 2) * 4 + 10 * 2 * 4
    assert floor.floor(work, Rates(1e-6, 1e-3))["ms"] == pytest.approx(work.bytes / 1e3)
    assert floor.floor(work, Rates(1e-9, 1e3))["bound"] == "compute"


@pytest.mark.parametrize("heads", [8, 2])
def test_operations_of_attention_with_fewer_heads_of_keys(heads):
    class Attention(nn.Module):
        def forward(self, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    args = (torch.randn(1, 8, 16, 32), torch.randn(1, heads, 24, 32), torch.randn(1, heads, 24, 32))
    assert floor.count(Attention(), args).operations == 2 * 8 * 16 * 24 * (32 + 32)


def test_the_chain_does_the_operations_it_is_known_for():
    with torch.device("meta"):
        module, args, _ = networks.make("chain-256", "bf16")
    with torch.no_grad():
        operations = sum(2 * args[0].shape[0] * m.weight.numel() for m in module if isinstance(m, nn.Linear))
    assert operations == pytest.approx(1.27e12, rel=2e-3) and args[0].dtype == torch.bfloat16


NETWORKS = [name for suite in ("gemms", "chains", "sweep", "patterns") for name in cases.suite(suite)]


@pytest.mark.parametrize("name", dict.fromkeys(NETWORKS))
def test_every_network_can_be_made_and_run(name):
    with torch.device("meta"), torch.no_grad():
        module, args, _ = cases.find(name, "bf16").make()
        results = module(*args)
    assert all(result.dtype == torch.bfloat16 for result in (results if isinstance(results, tuple) else [results]))


def test_a_form_is_asked_for_by_name():
    case = cases.find("multicast@bulk", None)
    assert case.form == {"cut-pipelines": "stages=true"}
    assert not cases.find("multicast", None).form
    with pytest.raises(UserError, match="there is no case 'multicast@banana'"):
        cases.find("multicast@banana", None)


def test_applications_are_those_of_the_examples():
    from examples.models import FULL

    assert set(cases.APPLICATIONS) == set(FULL)


def linear():
    return nn.Linear(8, 4).eval(), (torch.randn(64, 8),)


def test_a_model_of_the_users_is_a_case(tmp_path):
    module, args, _ = cases.find(f"{__file__}:linear", "bf16").make()
    assert module.weight.dtype == args[0].dtype == torch.bfloat16
    path = tmp_path / "linear.pt2"
    torch.export.save(torch.export.export(*linear()), path)
    module, args, _ = cases.find(str(path), None).make()
    assert module(*args).shape == (64, 4)


def test_sums_of_ncus_csv():
    text = (
        "==PROF== Connected\nsome output\n"
        '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","7","gemm","dram__bytes_read.sum","byte","1,024"\n"0","7","gemm","dram__bytes_write.sum","byte","512"\n'
        '"1","7","relu","dram__bytes_read.sum","byte","1"\n"1","7","relu","other","byte","99"\n'
    )
    assert dram.parse(text) == {"read": 1025, "written": 512, "kernels": 2}
    assert dram.parse("==ERROR== no permission")["kernels"] == 0


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1", "ncu: ==ERROR== ERR_NVGPUCTRPERM"),
        ("sleep 20 & wait", "ncu took more than 0.3 s"),  # what it started holds the pipe
        ("exit 0", "ncu: nothing"),
    ],
)
def test_ncus_failures_are_told(monkeypatch, tmp_path, script, said):
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/sh\n{script}\n")
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    start = time.perf_counter()
    assert dram.moved(["chain-64"], "eager", 0.3) == {"said": said}
    assert time.perf_counter() - start < 5


def test_unknown_models_of_a_checkout(monkeypatch):
    for name in ("chain-x", "chain-256-tanh", "chain-0", "linear-1-2", "linear-8-8-8-layernorm", "hidden-4096"):
        with pytest.raises(UserError, match="or one of nerf-64k"):
            cases.find(name, None)
    assert cases.find("chain-96-gelu", None).name == "chain-96-gelu"


def test_names_that_give_sizes():
    assert Chain.parse("chain-256") == Chain.parse("chain-256x10-1048576-relu") == Chain(256)
    assert Chain.parse("chain-256x3-17") == Chain(256, 3, 17)
    assert Chain.parse("chain-64-0-gelu") == Chain(64, rows=0, activation="gelu")
    assert Layer.parse("linear-3-4-5") == Layer(3, 4, 5, "relu", bias=True)
    assert Layer.parse(shapes.SQUARE) == Layer(8192, 8192, 8192, "none", bias=False)
    module, args, _ = cases.find("linear-5000-4-6-silu", "f32").make()
    assert args[0].shape == (5000, 6) and args[0].is_contiguous()
    assert torch.equal(module(*args), nn.functional.silu(module[0](*args))) and module[0].bias.shape == (4,)
    bare, _, _ = cases.find("linear-5000-4-6-none-nobias", "f32").make()
    assert isinstance(bare, nn.Linear) and bare.bias is None


def test_gemms_are_layers_of_the_applications():
    """Every shape of the suite is that of a layer in examples/models."""
    from examples.models import FULL

    found: dict[str, set] = {}
    for name, origin in shapes.GEMMS.items():
        application, layer = origin.split(",")[0], Layer.parse(name)
        if application not in found:
            with torch.device("meta"):
                module, _ = FULL[application](torch.bfloat16)
            linears = [m for m in module.modules() if isinstance(m, nn.Linear)]
            found[application] = {(linear.out_features, linear.in_features) for linear in linears}
        assert (layer.n, layer.k) in found[application], name
