"""What CPU code does to the process that it is loaded into, and what a fork and a system say."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import kitsune_mlir
from kitsune_mlir import UserError
from kitsune_mlir.runtime import cpu
from kitsune_mlir.runtime.gpu import _Forked

INPUTS = {"x": np.ones((4096, 16), np.float32), "scale": np.ones(4, np.float32)}


@pytest.fixture(scope="module")
def saved(compiled, tmp_path_factory):
    return compiled.save(tmp_path_factory.mktemp("process") / "model.kitsune")


def test_children_forked_during_a_call_can_call(saved):
    """Each child ends by itself: with 0 when its result is right, by a signal when it waits for ever."""
    script = f"""
        import os, signal, threading
        import numpy as np
        import kitsune_mlir

        model = kitsune_mlir.load({str(saved)!r})
        inputs = {{"x": np.ones((4096, 16), np.float32), "scale": np.ones(4, np.float32)}}
        wanted = model(**inputs)
        done = threading.Event()

        def work():
            while not done.is_set():
                model(**inputs)

        thread = threading.Thread(target=work)
        thread.start()
        ends = []
        for _ in range(5):
            if not (child := os.fork()):
                signal.alarm(10)
                found = [model(**inputs) for _ in range(2)][1]
                os._exit(0 if all((found[name] == wanted[name]).all() for name in wanted) else 1)
            ends.append(os.waitpid(child, 0)[1])
        done.set()
        thread.join()
        assert ends == [0] * 5, ends
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_gpu_is_refused_to_forked_children():
    with pytest.raises(UserError, match="forked from one that uses it"), _Forked():
        pass


def test_native_code_is_unmapped_with_its_model(saved):
    def mapped():
        return Path("/proc/self/maps").read_text().count("main.so")

    before = mapped()
    for _ in range(3):
        model = kitsune_mlir.load(saved)
        model(**INPUTS)
        assert mapped() > before
        del model
    assert mapped() == before


def test_code_that_the_system_does_not_load(monkeypatch):
    """As where TMPDIR is mounted noexec; an empty file will do for one that cannot be mapped."""
    with pytest.raises(UserError, match="compiled code cannot be loaded .* let TMPDIR name another"):
        cpu.Library(b"")


def test_only_functions_of_the_compiler_are_looked_up(compiled):
    library = cpu.Library(compiled._content.sections["cpu"].files["main.so"])
    for name, message in (("free", "no function of ours"), ("kitsune_stage_none", "has no function")):
        with pytest.raises(UserError, match=message):
            library.function(name)
