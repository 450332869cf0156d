"""A bug of ours anywhere in the driver is an InternalError with a file that shows it."""

from pathlib import Path

import pytest

import kitsune_mlir
from kitsune_mlir import InternalError, UserError, mlir
from kitsune_mlir.passes import PASSES, find

MLP = str(Path(__file__).parents[2] / "examples" / "mlp.mlir")


@pytest.mark.parametrize("step", ["partition-dataflow", "place-stages", "convert-kitsune-to-cpu"])
def test_a_pass_that_fails(monkeypatch, step):
    def fail(self, module):
        mlir.walk(module, "func.func")[0].location.emit_error("the moon is full")
        raise mlir.ir.MLIRError("failed", [])

    monkeypatch.setattr(find(step), "run", fail)
    with pytest.raises(InternalError, match=rf"pass {step} failed: .*/examples/mlp.mlir:1: the moon is full") as caught:
        kitsune_mlir.compile(MLP)
    text = open(caught.value.reproducer).read()
    assert text.startswith(f"// kitsune-opt {caught.value.reproducer} --{step}")
    assert mlir.parse(text, mlir.context()).operation.verify()


def test_a_pass_that_leaves_what_is_not_valid(monkeypatch):
    def spoil(self, module):
        op = mlir.walk(module, "linalg.matmul")[0]
        op.operands[0] = op.operands[1]

    monkeypatch.setattr(find("project-gathers"), "run", spoil)
    with pytest.raises(InternalError, match="pass project-gathers failed: .*/examples/mlp.mlir:.*'linalg.matmul' op"):
        kitsune_mlir.compile(MLP)


def test_a_python_exception_in_a_pass(monkeypatch):
    monkeypatch.setattr(find(PASSES[0]), "run", lambda self, module: 1 // 0)
    with pytest.raises(InternalError, match="failed: ZeroDivisionError: integer division or modulo by zero"):
        kitsune_mlir.compile(MLP)


def test_a_python_exception_in_code_generation(monkeypatch):
    from kitsune_mlir.codegen import cpu

    monkeypatch.setattr(cpu, "lower_to_llvm", lambda module: {}["x"])
    with pytest.raises(InternalError, match="code generation for cpu failed: KeyError"):
        kitsune_mlir.compile(MLP)


def test_what_the_user_did_stays_the_users(monkeypatch):
    def refuse(self, module):
        raise UserError("not like this")

    monkeypatch.setattr(find(PASSES[0]), "run", refuse)
    with pytest.raises(UserError, match="^not like this$"):
        kitsune_mlir.compile(MLP)
