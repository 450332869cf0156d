"""Run as a program: loads, shows and calls thousands of mutated artifacts. Only KitsuneErrors may come of it.

    python artifact_mutations.py FOLDER ARTIFACT...

Half of the mutants are sealed anew, as one would be whose author changes the code's checksum of the manifest too; of
these the CPU's code is not run, for it is the author's.
"""

from __future__ import annotations

import copy
import faulthandler
import hashlib
import json
import resource
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import kitsune_mlir
from kitsune_mlir import KitsuneError
from kitsune_mlir.codegen.section import Section, seal
from kitsune_mlir.runtime.gpu import GpuRunner

EXAMPLES = 1000
NUMBERS = [0, 1, -1, 2, 63, 65, 4096, 1 << 31, 1 << 48, (1 << 62) + 1, 10**30, 0.5, float("nan"), float("inf")]
WORDS = ["", "x", "system", "../x", "a0", "f64", "u8", "cpu", "gpu", "\0", "\ud800"]
VALUES = [*NUMBERS, *WORDS, None, True, [], {}, [1], {"leaf": 0}]


class NullMemory:
    pointer = 1 << 40


class NullDevice:
    """A GPU that does nothing."""

    number = 0

    def check(self, manifest: dict[str, Any]) -> None:
        pass

    def allocate(self, nbytes: int, stream: int) -> NullMemory:
        assert 0 < nbytes < 1 << 62
        return NullMemory()

    def load(self, name: str, files: dict[str, bytes]) -> str:
        return files[f"{name}.ptx"].decode()

    def kernel(self, code: str, name: str, overlapped: bool) -> str:
        assert f".entry {name}(" in code
        return name

    def pipeline(self, launch: dict[str, Any], code: str, overlapped: bool) -> NullPipeline:
        return NullPipeline()

    def array(self, value: Any, stream: int) -> None:
        return None

    def capturing(self, stream: int) -> bool:
        return False

    def stream(self, inputs: Any, stream: Any) -> int:
        return 0

    def ignore(self, *_: Any) -> None:
        pass

    write = read = copy = zero = launch = order = synchronize = ignore


class NullPipeline:
    workspace_bytes = counter_bytes = 0
    is_idle = False

    def bind(self, arguments: Any, results: Any) -> NullPipeline:
        return self

    def launch(self, stream: int, pointers: list[int], workspace: int | None, alone: bool) -> None:
        pass


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the values in a tree are."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at, *(path for key, value in inner for path in paths(value, (*at, key)))]


def value_at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


KINDS = ("value", "near", "remove", "other", "repeat")
NEAR = (lambda v: v + 1, lambda v: v - 1, lambda v: v * 2, lambda v: v * 100, lambda v: -v)
NUMBER = st.integers(0, 1 << 20)  # a choice among so and so many: its remainder
CHANGES = st.lists(st.tuples(NUMBER, st.sampled_from(KINDS), NUMBER), min_size=1, max_size=3)


def mutate(tree: Any, places: list[tuple[Any, ...]], where: int, kind: str, how: int) -> None:
    """Changes one value somewhere in a tree, if it is still there."""
    *outer, key = places[where % len(places)]
    try:
        parent, value = value_at(tree, tuple(outer)), value_at(tree, (*outer, key))
        other = value_at(tree, places[how % len(places)]) if kind == "other" else None
    except (KeyError, IndexError, TypeError):
        return
    if kind == "remove":
        del parent[key]
    elif kind == "repeat" and isinstance(parent, list):
        parent.insert(key, value)
    elif kind == "repeat":
        parent[f"{key}x"] = value
    elif kind == "near" and type(value) is int:
        parent[key] = NEAR[how % len(NEAR)](value)
    else:
        parent[key] = copy.deepcopy(other if kind == "other" else VALUES[how % len(VALUES)])


def sealed_anew(manifest: Any, members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with code that is for the manifest as it is now; the manifest gets their checksums."""
    members = dict(members)
    try:
        for name, target in manifest["targets"].items():
            section = Section(target["section"], {file: members[f"{name}/{file}"] for file in target["files"]})
            for file, data in seal(section).files.items():
                members[f"{name}/{file}"] = data
                target["files"][file] = hashlib.sha256(data).hexdigest()
    except (KeyError, TypeError, AttributeError, ValueError):
        pass  # it is refused before that matters
    return members


def use(path: Path, run_cpu: bool) -> bool:
    """Whether it loads; then all that can be asked of it is."""
    try:
        loaded = kitsune_mlir.load(path)
    except KitsuneError:
        return False
    interface, given = loaded.interface, []
    for call in (loaded.report, lambda: json.dumps(loaded.plans), lambda: loaded.ptx, lambda: loaded.digest):
        try:
            str(call()).encode()
        except KitsuneError:
            pass
    for spec in interface.inputs:
        shape = [3 if size is None else size for size in spec.shape]
        given.append(np.zeros(shape if np.prod(shape) < 1 << 20 else [1], spec.numpy_dtype))
    for name, kind in loaded._content.kinds.items():
        section = loaded._content.sections[name]
        try:
            if kind == "gpu":
                GpuRunner(section.manifest, section.files, interface.constants(), NullDevice()).launch(given)
            elif run_cpu:
                args, kwargs = interface.nest(given)
                loaded(*args, **kwargs)
        except KitsuneError:
            pass
    return True


def main(folder: Path, artifacts: list[str]) -> None:
    # What asks for too much memory is to fail here and now, and not to be killed.
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    faulthandler.enable()
    pristine = []
    for path in artifacts:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        text = members.pop("manifest.json")
        pristine.append((text, members, paths(json.loads(text))[1:]))
        assert use(Path(path), run_cpu=True)
    loaded = []

    @seed(1)
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(range(len(pristine))), CHANGES, st.booleans())
    def fuzz(which: int, changes: list[tuple[int, str, int]], again: bool) -> None:
        text, members, places = pristine[which]
        manifest = json.loads(text)
        for change in changes:
            mutate(manifest, places, *change)
        if again:
            members = sealed_anew(manifest, members)
        file.seek(0)
        file.truncate()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("manifest.json", json.dumps(manifest))
            for name, content in members.items():
                archive.writestr(name, content)
        file.flush()
        loaded.append(use(mutant, run_cpu=not again))

    mutant = folder / "mutant.kitsune"
    with mutant.open("w+b") as file:
        fuzz()
    print(len(loaded), sum(loaded))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
