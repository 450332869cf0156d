"""A Python process beside this one, in which MLIR and LLVM may die without taking the caller along.

Some of their passes abort the process on input they do not like. What runs them is a function of one picklable
argument that is called in the worker, by name:

    worker.call("kitsune_mlir.codegen.ptx_worker:answer", {...})

The process is started by the first call, or before by `warm_up`, and kept: starting takes half a second. It
ends with this process. A plain subprocess, and not one of `multiprocessing`: it needs no `__main__` that can be
imported again, and daemonic processes may have it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from kitsune_mlir.errors import InternalError, UserError

PATIENCE_S = 600


class Died(Exception):
    """The worker ended, or did not answer in time; the text says how, in a few words."""


class _Worker:
    """The process, as this process sees it. One call at a time; threads wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._said: IO[bytes] | None = None  # what the process printed over the present call

    def forget(self) -> None:
        """Starts anew in a forked process: the worker is its parent's, and so is the lock, which may be held."""
        if self._process is not None:
            self._process.returncode = 0  # nothing to wait for
        self._close_files()
        self.__init__()  # type: ignore[misc]

    def start(self) -> None:
        """Starts the process, if none runs. Waits neither for it to be ready nor for a call in another thread."""
        if self._lock.acquire(blocking=False):
            try:
                self._start()
            finally:
                self._lock.release()

    def call(self, function: str, argument: Any, patience: float) -> Any:
        with self._lock:
            connection, said = self._start()
            said.seek(0)  # the process writes where this says
            said.truncate()
            answered = False
            try:
                connection.send((function, argument))
                if not connection.poll(patience):
                    raise Died(f"it did not end within {patience:.0f} s")
                good, result = connection.recv()
                answered = True
            except (EOFError, ConnectionError) as error:
                raise Died(self._last_words()) from error
            finally:
                if not answered:  # an interrupted call too, whose answer is not to be taken for the next one's
                    self._stop()
        if not good:
            raise InternalError(f"{function} failed in the worker: {result}")
        return result

    def close(self) -> None:
        """Ends the process, also one that a thread waits for."""
        if self._process is not None:
            self._process.kill()

    def _start(self) -> tuple[Connection[Any, Any], IO[bytes]]:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._connection is None or self._said is None:
            ours, theirs = Pipe()
            said = os.fdopen(os.memfd_create("kitsune-worker"), "w+b")
            path = [str(folder) for folder in sys.path]
            main = f"import sys; sys.path = {path}; from kitsune_mlir import worker; worker.main({theirs.fileno()})"
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", main],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    pass_fds=[theirs.fileno()],
                )
            except (OSError, TypeError, RuntimeError) as error:
                raise UserError(f"cannot start a Python process to compile in ({sys.executable}): {error}") from error
            finally:
                theirs.close()
            self._connection, self._said = ours, said
        return self._connection, self._said

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._close_files()
        self._process = self._connection = self._said = None

    def _close_files(self) -> None:
        for file in (self._connection, self._said):
            if file is not None:
                file.close()

    def _last_words(self) -> str:
        """What the dead process said on stderr, one line: how it ended, and its first error."""
        assert self._process is not None and self._said is not None
        status = self._process.wait()
        ended = signal.strsignal(-status) if status < 0 else f"exit status {status}"
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines()]
        told = [line for line in lines if "error" in line.lower()]
        return f"{ended}: {told[0][:300]}" if told else str(ended)


_worker = _Worker()
atexit.register(_worker.close)
os.register_at_fork(after_in_child=_worker.forget)

warm_up = _worker.start


def call(function: str, argument: Any, patience: float = PATIENCE_S) -> Any:
    """What "module:function" gives of the argument, called in the worker; both must be picklable.

    Raises Died when the process dies over it or needs more than `patience` seconds, InternalError when the
    function raises, UserError when no process can be started.
    """
    return _worker.call(function, argument, patience)


def main(file: int) -> None:
    """What runs in the worker: answers calls until there is nobody to call."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who then ends this process
    from kitsune_mlir import mlir

    mlir.context()  # loads what most functions need, while nobody waits for it
    connection: Connection[Any, Any] = Connection(file)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            function, argument = connection.recv()
            try:
                module, _, name = function.partition(":")
                answer = True, getattr(importlib.import_module(module), name)(argument)
            except Exception as error:
                traceback.print_exc()
                answer = False, f"{type(error).__name__}: {error}"
            connection.send(answer)
