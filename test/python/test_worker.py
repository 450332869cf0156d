"""The process in which MLIR may die: what becomes of its caller."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kitsune_mlir
from kitsune_mlir import mlir, worker
from kitsune_mlir.errors import InternalError, UnsupportedError
from kitsune_mlir.frontend.lower_torch import lower_torch
from kitsune_mlir.mlir import ir

# torch-mlir dereferences null when it makes an 8-bit constant; the list in between needs to be copied along.
DEADLY = """func.func @main(%x: !torch.vtensor<[2,2],si8>) -> !torch.vtensor<[4],si8> {
  %four = torch.constant.int 4
  %shape = torch.prim.ListConstruct %four : (!torch.int) -> !torch.list<int>
  %flat = torch.aten.view %x, %shape : !torch.vtensor<[2,2],si8>, !torch.list<int> -> !torch.vtensor<[4],si8>
  %y = torch.aten.mul.Scalar %flat, %four : !torch.vtensor<[4],si8>, !torch.int -> !torch.vtensor<[4],si8>
  return %y : !torch.vtensor<[4],si8>
}
"""


def test_a_death_in_torch_mlir_names_the_operator_and_its_line(tmp_path: Path) -> None:
    path = tmp_path / "deadly.mlir"
    path.write_text(DEADLY)
    with pytest.raises(InternalError, match=r"aten\.mul\.Scalar at .*deadly\.mlir:5 \(Segmentation fault") as caught:
        kitsune_mlir.compile(path)
    assert "torch.aten.mul.Scalar" in Path(caught.value.reproducer).read_text()
    assert worker.call("json:dumps", [1]) == "[1]"


def test_a_module_that_does_not_verify_is_not_supported() -> None:
    module = mlir.parse(DEADLY, mlir.context())
    with module.context:
        module.body.operations[0].attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], []))
    with pytest.raises(UnsupportedError, match="m: torch-mlir cannot lower what .*: .func.func. op entry block must"):
        lower_torch(module, "m")


def test_an_answer_that_nobody_took_is_not_given_to_the_next_call() -> None:
    with pytest.raises(worker.Died, match="did not end"):
        worker.call("time:sleep", 60, patience=0.1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts behind itself ignores it
    try:
        interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            worker.call("time:sleep", 60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert worker.call("json:dumps", [2]) == "[2]"


def test_threads_get_their_own_answers() -> None:
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda n: worker.call("json:loads", str(n)), range(60))) == list(range(60))


PID = "__import__('os').getpid()"


def _pid() -> int:
    return worker.call("builtins:eval", PID)


def test_a_forked_daemonic_child_has_a_worker_of_its_own() -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ours = _pid()
    with worker._worker._lock:  # as when another thread is in a call
        child = context.Process(target=lambda: results.put(_pid()), daemon=True)
        child.start()
    theirs = results.get(timeout=60)
    child.join()
    assert theirs != ours == _pid()


def test_it_ends_with_its_caller_even_when_that_is_killed() -> None:
    script = f"from kitsune_mlir import worker; print(worker.call('builtins:eval', {PID!r}), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as caller:
        pid = int(caller.stdout.readline())
        caller.kill()
    for _ in range(100):
        if not _runs(pid):
            return
        time.sleep(0.05)
    pytest.fail("the worker lives on")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
