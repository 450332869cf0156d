"""Artifacts: what is saved comes back, runs without the compiler, and damage is told in a sentence."""

import json
import os
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
import torch

import kitsune_mlir
from kitsune_mlir import UserError
from kitsune_mlir.runtime import artifact


@pytest.fixture(scope="module")
def saved(compiled, tmp_path_factory):
    return compiled.save(tmp_path_factory.mktemp("artifact") / "model.kitsune")


def test_a_loaded_model_gives_the_same_results_and_plan(compiled, saved):
    loaded = kitsune_mlir.load(saved)
    x, scale = torch.randn(37, 16), torch.rand(4)
    ours, theirs = loaded(x=x, scale=scale), compiled(x=x, scale=scale)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert loaded.plans == json.loads(json.dumps(compiled.plans))
    assert loaded.targets == ("cpu",)


def test_saving_again_gives_an_equal_file(saved, tmp_path):
    again = kitsune_mlir.load(saved).save(tmp_path / "again.kitsune")
    with zipfile.ZipFile(saved) as a, zipfile.ZipFile(again) as b:
        assert a.namelist() == b.namelist()
        assert all(a.read(name) == b.read(name) for name in a.namelist())


def test_runs_without_the_compiler(saved, perceptron, tmp_path):
    """In a process that can import neither torch nor torch-mlir nor llvmlite."""
    x, scale = torch.randn(5, 16), torch.ones(4)
    np.savez(tmp_path / "inputs.npz", x=x.numpy(), scale=scale.numpy())
    script = f"""
        import sys

        class Block:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("torch", "torch_mlir", "llvmlite", "ml_dtypes", "rich"):
                    raise ImportError(name + " is blocked")

        sys.meta_path.insert(0, Block())
        import numpy
        import kitsune_mlir

        inputs = numpy.load({str(tmp_path / "inputs.npz")!r})
        results = kitsune_mlir.load({str(saved)!r})(x=inputs["x"], scale=inputs["scale"])
        numpy.savez({str(tmp_path / "results.npz")!r}, **results)
        assert not {{"torch", "torch_mlir", "llvmlite"}} & sys.modules.keys()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
    found = np.load(tmp_path / "results.npz")
    wanted = perceptron(x, scale=scale)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name].detach().numpy(), rtol=1e-5, atol=1e-5)


def test_weights_are_stored_uncompressed_and_aligned(saved):
    weights = kitsune_mlir.load(saved).interface.arguments
    mapped = [argument.value for argument in weights if isinstance(argument.value, np.memmap)]
    assert len(mapped) == 4
    assert all(value.ctypes.data % 64 == 0 for value in mapped)


def test_a_missing_artifact(tmp_path):
    with pytest.raises(UserError, match="there is no artifact"):
        kitsune_mlir.load(tmp_path / "nothing.kitsune")


@pytest.mark.parametrize("keep", [0, 10, 1000, -1])
def test_a_truncated_artifact(saved, tmp_path, keep):
    damaged = tmp_path / "damaged.kitsune"
    damaged.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(UserError, match="is not a kitsune artifact, or is damaged"):
        kitsune_mlir.load(damaged)


def test_a_foreign_zip(exported, tmp_path):
    torch.export.save(exported, tmp_path / "model.pt2")
    with pytest.raises(UserError, match="is not a kitsune artifact, or is damaged"):
        kitsune_mlir.load(tmp_path / "model.pt2")


def _with_manifest(saved, path, **changes):
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, json.dumps(json.loads(data) | changes) if name == "manifest.json" else data)
    return path


def test_another_format_version(saved, tmp_path):
    newer = _with_manifest(saved, tmp_path / "newer.kitsune", kitsune_format=artifact.FORMAT + 1, version="9.9")
    sentence = rf"has artifact format {artifact.FORMAT + 1} \(written by kitsune-mlir 9.9\), this version reads"
    with pytest.raises(UserError, match=sentence):
        kitsune_mlir.load(newer)


def test_code_for_another_processor_is_refused_at_the_call(saved, tmp_path):
    with zipfile.ZipFile(saved) as file:
        targets = json.loads(file.read("manifest.json"))["targets"]
    targets["cpu"]["section"]["host"]["features"] = ["teleportation"]
    foreign = kitsune_mlir.load(_with_manifest(saved, tmp_path / "foreign.kitsune", targets=targets))
    with pytest.raises(kitsune_mlir.KitsuneError, match="this machine runs none of its targets .*teleportation"):
        foreign(x=np.zeros((1, 16), np.float32), scale=np.ones(4, np.float32))


def test_a_failed_save_leaves_nothing(compiled, tmp_path):
    with pytest.raises(UserError, match="cannot write"):
        compiled.save(tmp_path / "no-such-folder" / "model.kitsune")
    (tmp_path / "folder.kitsune").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        compiled.save(tmp_path / "folder.kitsune")
    assert os.listdir(tmp_path) == ["folder.kitsune"]
