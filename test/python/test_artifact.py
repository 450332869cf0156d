"""Artifacts: what is saved comes back, runs without the compiler, and damage is told in a sentence."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
import torch
from artifact_mutations import sealed_anew

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


def test_a_plan_says_where_a_pipeline_is_cut(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).bfloat16()
    compiled = kitsune_mlir.compile(model, (torch.randn(100, 64).bfloat16(),), target="sm_90a")
    loaded = kitsune_mlir.load(compiled.save(tmp_path / "cut.kitsune"))
    assert loaded.plan["cuts"] == compiled.plan["cuts"] and "not in one kernel" in loaded.report()


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


def test_nothing_depends_on_the_file_after_loading(saved, tmp_path):
    path = tmp_path / "model.kitsune"
    path.write_bytes(saved.read_bytes())
    loaded = kitsune_mlir.load(path)
    os.truncate(path, 0)
    values = [argument.value for argument in loaded.interface.arguments if argument.value is not None]
    assert len(values) == 4
    assert all(value.ctypes.data % artifact.ALIGNMENT == 0 and value.flags.writeable for value in values)
    loaded(x=np.zeros((3, 16), np.float32), scale=np.ones(4, np.float32))


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


def _members(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def _written(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def _with_manifest(saved, path, change):
    """The artifact with a manifest changed in place by `change`, and code that says it is for that one."""
    members = _members(saved)
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members = sealed_anew(manifest, members)
    return _written(path, members | {"manifest.json": json.dumps(manifest)})


def test_another_format_version(saved, tmp_path):
    other = {"kitsune_format": artifact.FORMAT + 1, "version": "9.9"}
    newer = _with_manifest(saved, tmp_path / "newer.kitsune", lambda manifest: manifest.update(other))
    sentence = rf"has artifact format {artifact.FORMAT + 1} \(written by kitsune-mlir 9.9\), this version reads"
    with pytest.raises(UserError, match=sentence):
        kitsune_mlir.load(newer)


def test_code_for_another_processor_is_refused_at_the_call(saved, tmp_path):
    def change(manifest):
        manifest["targets"]["cpu"]["section"]["host"]["features"] = ["teleportation"]

    foreign = kitsune_mlir.load(_with_manifest(saved, tmp_path / "foreign.kitsune", change))
    with pytest.raises(kitsune_mlir.KitsuneError, match="this machine runs none of its targets .*teleportation"):
        foreign(x=np.zeros((1, 16), np.float32), scale=np.ones(4, np.float32))


@pytest.mark.parametrize("name", ["weights/1", "cpu/main.so"])
def test_a_changed_member(saved, tmp_path, name):
    """The archive's own checksums are made anew, as an editor of zip files does."""
    members = _members(saved)
    data = bytearray(members[name])
    data[len(data) // 2] ^= 4
    changed = _written(tmp_path / "changed.kitsune", members | {name: bytes(data)})
    with pytest.raises(UserError, match=f"member '{name}' is not what the manifest's checksum says"):
        kitsune_mlir.load(changed)


def test_flipped_bits_anywhere(saved, tmp_path):
    """What a flip leaves loadable, such as the time of a member in the archive, is the same model."""
    content, rng, path = saved.read_bytes(), np.random.default_rng(0), tmp_path / "flipped.kitsune"
    wanted = kitsune_mlir.load(saved)
    for place in rng.integers(0, len(content), 300):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            found = kitsune_mlir.load(path)
        except UserError:
            continue
        assert found.digest == wanted.digest
        for ours, theirs in zip(found.interface.arguments, wanted.interface.arguments, strict=True):
            assert ours.value is theirs.value or (ours.value == theirs.value).all()


def test_other_members(saved, tmp_path):
    members, path = _members(saved), tmp_path / "other.kitsune"
    with pytest.raises(UserError, match="must not have a member 'more'"):
        kitsune_mlir.load(_written(path, members | {"more": b""}))
    with pytest.raises(UserError, match="must be stored as it is"):
        kitsune_mlir.load(_written(path, members, compression=zipfile.ZIP_DEFLATED))
    del members["weights/1"]
    with pytest.raises(UserError, match="must have a member 'weights/1'"):
        kitsune_mlir.load(_written(path, members))


def test_code_runs_only_with_the_manifest_it_was_made_with(saved, tmp_path):
    members = _members(saved)
    manifest = json.loads(members["manifest.json"])
    manifest["targets"]["cpu"]["section"]["scratch_bytes"] = 0
    with pytest.raises(UserError, match="the code for 'cpu' must have been made with this manifest"):
        kitsune_mlir.load(_written(tmp_path / "small.kitsune", members | {"manifest.json": json.dumps(manifest)}))


def test_no_symbol_of_the_system_is_called(saved, tmp_path):
    def change(manifest):
        manifest["targets"]["cpu"]["section"]["entry"] = "system"

    with pytest.raises(UserError, match="section.entry must be '_mlir__mlir_ciface_main', found 'system'"):
        kitsune_mlir.load(_with_manifest(saved, tmp_path / "system.kitsune", change))


def test_a_digest_names_one_artifact(compiled, saved, tmp_path):
    wanted = hashlib.sha256(_members(saved)["manifest.json"]).hexdigest()
    assert kitsune_mlir.load(saved, digest=wanted.upper()).digest == compiled.digest == wanted
    with pytest.raises(UserError, match=f"has the digest {wanted}, and 12ab was asked for"):
        kitsune_mlir.load(saved, digest="12ab")


@pytest.fixture(scope="module")
def saved_for_gpu(exported, tmp_path_factory):
    return kitsune_mlir.compile(exported, target="sm_90a").save(tmp_path_factory.mktemp("gpu") / "model.kitsune")


def _pipeline_step(section):
    return next(step for step in section["program"] if step["op"] == "pipeline")


def _launch(section):
    return section["pipelines"]["pipeline0"]["launch"]


@pytest.mark.parametrize(
    ("target", "change", "sentence"),
    [
        ("cpu", lambda s: s["pipelines"][0]["stages"][0].update(replicas=100_000), "replicas must be a whole number"),
        ("cpu", lambda s: s["pipelines"][0]["stages"][0].update(replicas=7), "replicas must be 7, as its role has"),
        ("cpu", lambda s: s["pipelines"][0].update(tile_rows=1 << 62), "tile_rows must be a whole number from 1"),
        ("cpu", lambda s: s["pipelines"][0].update(rows_of=99), "rows_of must be below 6, found 99"),
        ("cpu", lambda s: s["pipelines"][0].update(queues=[]), "must have its put below 0, found 0"),
        ("cpu", lambda s: s["results"][0].update(dtype="f64"), "results[0].dtype must be f32, found f64"),
        ("cpu", lambda s: s["results"][0].update(shape=[None, 5]), "results[0].shape must be [None, 4]"),
        ("cpu", lambda s: s["arguments"].pop(), "arguments must be 6"),
        ("gpu", lambda s: _launch(s).update(threads=128), "must have 256 threads"),
        ("gpu", lambda s: _launch(s).update(ctas=-1), "ctas must be a whole number from 1"),
        ("gpu", lambda s: _launch(s)["maps"].pop(), "parameters that it takes"),
        ("gpu", lambda s: _launch(s)["maps"][0].update(tensor=99), "must have tensor maps of its tensors, found 99"),
        ("gpu", lambda s: _launch(s).update(streams=[9]), "must stream tensors that it gets, found number 9"),
        ("gpu", lambda s: _launch(s).update(streams=[0], axes=[7]), "must stream tensors that it gets, found number 0"),
        ("gpu", lambda s: _launch(s).update(axes=[]), "axes must give one of each stream, found 0"),
        ("gpu", lambda s: _pipeline_step(s)["args"].append("a0"), "parameters that it takes"),
        ("gpu", lambda s: _pipeline_step(s).update(args=["v99"]), "must name a buffer, found 'v99'"),
        ("gpu", lambda s: s["program"].pop(), "must end with its one return"),
        ("gpu", lambda s: s["modules"].clear(), "must have the files"),
    ],
)
def test_fields_that_do_not_fit_each_other(saved, saved_for_gpu, tmp_path, target, change, sentence):
    """In artifacts whose checksums all agree."""
    name, path = ("cpu", saved) if target == "cpu" else ("sm_90a", saved_for_gpu)
    damaged = _with_manifest(
        path, tmp_path / "x.kitsune", lambda manifest: change(manifest["targets"][name]["section"])
    )
    with pytest.raises(UserError) as refused:
        kitsune_mlir.load(damaged)
    assert sentence in str(refused.value)


def test_mutated_artifacts_are_refused_or_run(saved, saved_for_gpu, tmp_path):
    """In a process of its own, whose death would be seen."""
    script = os.path.join(os.path.dirname(__file__), "artifact_mutations.py")
    done = subprocess.run([sys.executable, script, tmp_path, saved, saved_for_gpu], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    mutants, loaded = map(int, done.stdout.split())
    assert mutants == 1000 and 0 < loaded < mutants


def test_a_failed_save_leaves_nothing(compiled, tmp_path):
    with pytest.raises(UserError, match="cannot write"):
        compiled.save(tmp_path / "no-such-folder" / "model.kitsune")
    (tmp_path / "folder.kitsune").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        compiled.save(tmp_path / "folder.kitsune")
    assert os.listdir(tmp_path) == ["folder.kitsune"]
