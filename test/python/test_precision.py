"""The precision of f32 products: what is asked for, what a module says, and the code of chips without wgmma."""

import gpu_steps
import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir, precision
from kitsune_mlir.bench import sides
from kitsune_mlir.codegen import ptx, ptxas
from kitsune_mlir.errors import UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.planning import target
from kitsune_mlir.tools import kitsune_opt

WRONG = "the precision of f32 products must be one of highest, high, medium, found"
EMPTY = "func.func @main() { return }"


@pytest.mark.parametrize("setting", precision.CHOICES)
def test_what_is_asked_for_or_torchs_own(setting):
    with sides.matmul_precision(setting):
        assert precision.choose(None) == setting
        assert [precision.choose(asked) for asked in precision.CHOICES] == list(precision.CHOICES)


@pytest.mark.parametrize("asked", precision.CHOICES)
def test_a_module_says_what_is_not_the_default(asked):
    module = mlir.parse(EMPTY, mlir.context())
    precision.give(module, asked)
    assert (precision.ATTRIBUTE in str(module)) == (asked != "highest")
    for text in (str(module), mlir.bytecode(module)):
        again = mlir.parse(text, mlir.context())
        inside = mlir.walk(again, "func.return")[0]
        assert precision.of(again.operation) == precision.of(inside) == asked
        assert precision.tf32_pieces(inside) == (2 if asked == "highest" else 1)


def test_another_word_is_the_users_error():
    for wrong in ("tf32", "", "High"):
        with pytest.raises(UserError, match=f"{WRONG} '{wrong}'"):
            kitsune_mlir.compile("no-such-file.pt2", matmul_precision=wrong)


@pytest.mark.parametrize("wrong", ['"exact"', "3 : i32"])
def test_another_word_in_a_module_is_the_users_error(wrong, tmp_path, capsys):
    path = tmp_path / "module.mlir"
    model, args = mlp()
    program = import_model(model, args)
    attribute = mlir.ir.Attribute.parse(wrong, program.module.context)
    program.module.operation.attributes[precision.ATTRIBUTE] = attribute
    path.write_text(str(program.module))
    passes = [f"--{name}" for name in gpu_steps.PLACED]
    assert kitsune_opt.main([str(path), *passes, "--target=sm_90a"]) == 1
    said = capsys.readouterr().err
    assert f"{WRONG} '{wrong.strip(chr(34))}'" in said and "Traceback" not in said and "internal" not in said


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), (torch.randn(64, 20),)


@pytest.mark.parametrize("chip", ["sm_80", "sm_89", "sm_100a", "sm_120"])
def test_chips_without_wgmma(chip):
    """One product of rounded operands, in place of three of their parts."""
    machine, texts = target.load(chip), {}
    for asked in ("highest", "high"):
        program = import_model(*mlp())
        precision.give(program.module, asked)
        gpu_steps.place(program.module, chip, {"cut-pipelines": "whole=true"})
        gpu_steps.convert(program.module, chip)
        (kernel,) = gpu_steps.kernels(program.module)
        texts[asked] = ptx.to_ptx(kernel, machine)
    products = {asked: text.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32") for asked, text in texts.items()}
    assert products["highest"] == 3 * products["high"] > 0
    assert "cvt.rna.tf32.f32" in texts["high"] and "cvt.rna.tf32.f32" not in texts["highest"]
    assert "-8192" in texts["highest"] and "-8192" not in texts["high"]  # the mask of upper bits
    if ptxas.find() is not None:
        assert all(found.registers for found in ptxas.assemble(texts["high"], machine).kernels.values())
