"""Kernels that have been made before are not made again, in any process."""

import os
import time

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir import worker
from kitsune_mlir.codegen import kept_code, ptxas
from kitsune_mlir.errors import InternalError
from kitsune_mlir.planning import target

HOPPER, AMPERE = target.load("sm_90a"), target.load("sm_80")
PTXAS = """#!/bin/sh
if [ "$1" = --version ]; then echo "release {version}"; exit; fi
echo run >> {count}
echo "ptxas info : Compiling entry function 'copy' for '$1'"
echo "ptxas info : Used 10 registers, 64 bytes smem"
grep -q nonsense "$3" && exit 1
cp "$3" "$5"
"""


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """How often a ptxas of a version has run since it was chosen by runs(version)."""
    count, versions = tmp_path / "count", iter(range(100))
    monkeypatch.setenv(kept_code.FOLDER, str(tmp_path / "kept" / "code"))

    def choose(version):
        script = tmp_path / f"ptxas{next(versions)}"
        script.write_text(PTXAS.format(version=version, count=count))
        script.chmod(0o755)
        monkeypatch.setattr(ptxas, "find", lambda: str(script))
        count.write_text("")
        return lambda: count.read_text().count("run")

    return choose


def entries():
    return sorted(kept_code.folder().glob("*.kept"))


def test_what_is_the_same_is_assembled_once(runs):
    count = runs("1.0")
    first = ptxas.assemble("copy", HOPPER)
    assert first.cubin == b"copy" and first.kernels["copy"].registers == 10
    assert ptxas.assemble("copy", HOPPER) == first and count() == 1
    assert ptxas.assemble("move", HOPPER).cubin == b"move" and count() == 2
    ptxas.assemble("copy", AMPERE)
    assert count() == 3 and len(entries()) == 3
    again = runs("1.0")  # the same ptxas at another place
    assert ptxas.assemble("copy", HOPPER) == first and again() == 0
    other = runs("1.1")
    ptxas.assemble("copy", HOPPER)
    assert other() == 1


def test_what_is_refused_is_not_kept(runs):
    count = runs("1.0")
    for _ in range(2):
        with pytest.raises(InternalError, match="does not take the PTX"):
            ptxas.assemble("nonsense", HOPPER)
    assert count() == 2 and not entries()


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-1], lambda whole: whole[1:], lambda whole: b"", lambda _: b"[]\n"]
)
def test_what_is_damaged_is_assembled_again(damage, runs):
    count = runs("1.0")
    first = ptxas.assemble("copy", HOPPER)
    (entry,) = entries()
    entry.write_bytes(damage(entry.read_bytes()))
    assert ptxas.assemble("copy", HOPPER) == first and count() == 2
    assert ptxas.assemble("copy", HOPPER) == first and count() == 2


def test_nothing_is_kept_where_nobody_says_where(runs, monkeypatch, tmp_path):
    count = runs("1.0")
    monkeypatch.delenv(kept_code.FOLDER)
    assert ptxas.assemble("copy", HOPPER) == ptxas.assemble("copy", HOPPER) and count() == 2
    monkeypatch.setenv(kept_code.FOLDER, str(tmp_path / "count" / "in a file"))
    assert ptxas.assemble("copy", HOPPER) == ptxas.assemble("copy", HOPPER) and count() == 4


def test_what_nobody_asked_for_is_removed(runs, monkeypatch):
    runs("1.0")
    for text in ("old", "asked for", "new"):
        ptxas.assemble(text, HOPPER)
    for entry in entries():
        long_ago = time.time() - 40 * 24 * 3600
        os.utime(entry, (long_ago, long_ago))
    ptxas.assemble("asked for", HOPPER)
    kept_code._forget_old.cache_clear()
    ptxas.assemble("newer", HOPPER)
    assert len(entries()) == 2
    kept_code._forget_old.cache_clear()
    monkeypatch.setattr(kept_code, "_MOST_BYTES", entries()[0].stat().st_size * 3 // 2)  # there is room for one
    ptxas.assemble("newest", HOPPER)
    assert len(entries()) == 2  # one of those before, and the newest


def test_code_is_generated_once(runs, monkeypatch):
    """Whatever the process; again where its own generator is another."""
    runs("1.0")
    monkeypatch.setattr(ptxas, "find", lambda: None)
    asked, call = [], worker.call

    def counted(function, argument, *patience):
        asked.append(function)
        return call(function, argument, *patience)

    monkeypatch.setattr(worker, "call", counted)

    def generated():
        asked.clear()
        text = kitsune_mlir.compile(Function(torch.sin), (torch.ones(100),), target="sm_90a").ptx
        return text, sum("ptx_worker" in function for function in asked)

    text, count = generated()
    assert count == 1 and generated() == (text, 0)
    monkeypatch.setattr(kept_code, "generator", lambda: "another")
    assert generated() == (text, 1)
