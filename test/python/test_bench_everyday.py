"""The suite of everyday models: each is a case that can be made, some run as torch runs them."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

import kitsune_mlir
from kitsune_mlir.bench import cases, everyday
from kitsune_mlir.errors import UserError
from kitsune_mlir.tools.gpusim import Simulation


def test_each_name_is_a_case():
    names = cases.suite("everyday")
    assert len(names) == len(set(names)) == len(everyday.MODELS) >= 46
    assert "everyday" in cases.SUITES and all(cases.find(name, None).name == name for name in names)
    for name in ("everyday/nothing", "everyday/", "everyday/resnet18-small", "resnet18"):
        with pytest.raises(UserError, match="there is no case .* everyday/NAME"):
            cases.find(name, None)


@pytest.mark.parametrize("dtype", [None, "f16"])
def test_every_model_is_made_and_runs_in_its_type_or_the_one_asked_for(dtype):
    for name in cases.suite("everyday"):
        kind = torch.float16 if dtype else everyday.MODELS[name.removeprefix(everyday.PREFIX)].kind
        with torch.device("meta"), torch.no_grad():
            module, args, _ = cases.find(name, dtype).make()
            results = tree_leaves(module(*args))
        types = {result.dtype for result in results if result.is_floating_point()}
        assert types == {kind}, name


@pytest.mark.parametrize(("name", "rows"), [("iris", 150), ("ncf", 33), ("tabtransformer", 3), ("wavenet", 1)])
def test_some_run_as_torch_runs_them(name, rows):
    torch.manual_seed(0)
    module, args, _ = cases.find(f"everyday/{name}", "f32").make()
    args = tuple(x[:rows, ..., :100] if x.dim() == 3 else x[:rows] for x in args)
    with torch.no_grad():
        torch.testing.assert_close(kitsune_mlir.compile(module, args, target="cpu")(*args), module(*args))


def test_one_is_right_in_the_simulator():
    torch.manual_seed(0)
    module, args, _ = cases.find("everyday/iris", None).make()
    compiled = kitsune_mlir.compile(module, args, target="sm_90a")
    with torch.no_grad():
        torch.testing.assert_close(Simulation(compiled)(*args), module(*args))
