"""The zoo of forms: every model can be made at every size, some run as torch runs them."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kitsune_mlir
from kitsune_mlir.bench import cases, draw_nets, zoo
from kitsune_mlir.errors import UserError

MOST_BYTES = 8e9


class Peak(TorchDispatchMode):
    """The most bytes that were alive at once; tensors of meta have none, but would."""

    def __init__(self):
        super().__init__()
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and (storage := leaf.untyped_storage())._cdata not in self.alive:
                self.alive[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.alive.pop, storage._cdata)
        self.most = max(self.most, sum(self.alive.values()))
        return result


def on_meta(name):
    with torch.device("meta"), torch.no_grad(), Peak() as peak:
        case = cases.find(name, None)
        module, args, _ = case.make()
        results = tree_leaves(module(*args))
    torch.set_float32_matmul_precision("highest")
    return args, results, peak.most


def test_there_are_many_and_each_name_is_one():
    names = [name for suite in cases.ZOOS for name in cases.suite(suite)]
    assert len(zoo.MODELS) >= 45 and len(names) == len(set(names)) == 3 * (len(zoo.MODELS) + 3 * len(zoo.TYPED))
    assert set(zoo.TYPED) <= set(zoo.MODELS)
    assert all(cases.find(name, None).name == name for name in names)
    assert all(model.stresses and list(model.sizes) == sorted(set(model.sizes)) for model in zoo.MODELS.values())


@pytest.mark.parametrize("suite", cases.ZOOS)
def test_every_model_is_made_and_runs(suite):
    for name in cases.suite(suite):
        _, results, most = on_meta(name)
        kind = torch.float32 if "f32" in name else torch.float16 if "-f16" in name else torch.bfloat16
        assert results and all(result.dtype == kind for result in results), name
        assert most < MOST_BYTES, name


def test_sizes_and_types_are_in_the_name():
    for name, shape, kind in (
        ("zoo/tall", (2_000_000, 16), torch.bfloat16),
        ("zoo/odd-medium", (9973, 131), torch.bfloat16),
        ("zoo/geglu-f16-small", (512, 640), torch.float16),
        ("zoo/geglu-tf32", (8192, 640), torch.float32),
    ):
        (x,), _, _ = on_meta(name)
        assert x.shape == shape and x.dtype == kind
    for name in ("zoo/nothing", "zoo/geglu-tiny", "zoo/geglu-small-f16", "zoo/geglu@small", "net-", "net-x"):
        with pytest.raises(UserError, match="there is no case"):
            cases.find(name, None)


@pytest.mark.parametrize("name", ["heads-joined", "glu", "lstm-cell", "film", "attention-cross", "conv-depthwise"])
def test_some_run_as_torch_runs_them(name):
    torch.manual_seed(0)
    module, args, _ = cases.find(f"zoo/{name}-f32-small", None).make()
    args = tuple(x[:32] if x.dim() == 2 else x[:1] for x in args)
    with torch.no_grad():
        torch.testing.assert_close(kitsune_mlir.compile(module, args, target="cpu")(*args), module(*args))


def test_a_seed_is_a_case():
    seed, net = next((seed, net) for seed in range(1000) if (net := draw_nets.draw(seed)).precision == "high")
    with torch.device("meta"):
        module, args, _ = cases.find(f"net-{seed}", None).make()
    assert module.net == net and args[0].shape[-1] == net.inputs[0]
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")
    module, args, _ = cases.find("net-5", "f16").make()
    assert module.net.dtype == "f16" and args[0].dtype == torch.float16
