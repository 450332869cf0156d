"""The suite of models with open sizes: each is a case that can be made, some run as torch runs them at other sizes."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

import kitsune_mlir
from kitsune_mlir.bench import cases, fields
from kitsune_mlir.errors import UserError


def test_each_name_is_a_case():
    names = cases.suite("fields")
    assert len(names) == len(set(names)) == len(fields.MODELS)
    assert "fields" in cases.SUITES and all(cases.find(name, None).name == name for name in names)
    with pytest.raises(UserError, match="there is no case .* fields/NAME"):
        cases.find("fields/nothing", None)


@pytest.mark.parametrize("name", fields.MODELS)
def test_every_model_has_open_sizes_and_runs(name):
    with torch.device("meta"), torch.no_grad():
        module, args, shapes = cases.find(fields.PREFIX + name, None).make()
        assert len(args) == len(shapes) and all(d < x.dim() for x, own in zip(args, shapes) for d in own)
        assert tree_leaves(module(*args))


def test_one_runs_as_torch_runs_it_at_other_sizes():
    torch.manual_seed(0)
    module, args, shapes = cases.find("fields/pooled", "f32").make()
    compiled = kitsune_mlir.compile(module, args, target="cpu", dynamic_shapes=shapes)
    for batch, length in ((2, 31), (5, 1)):
        x, mask = (one[:batch, :length] for one in args)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, mask), module(x, mask))
