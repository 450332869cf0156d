"""Runs kitsune-opt and filecheck for lit, in forks of one process that has imported what they import: starting Python
anew for each took half of the time of all lit tests.

    python server.py SOCKET

listens on an abstract Unix socket (`lit.cfg.py` starts it, and ends it with lit). `client.py` stands for the command:
it sends its arguments, its environment and its standard streams, and ends with the exit code that it gets back.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import marshal
import os
import socket
import sys
from collections.abc import Callable

from filecheck.main import main as filecheck

from kitsune_mlir import mlir
from kitsune_mlir.passes import PASSES, find
from kitsune_mlir.tools import emit, kitsune_opt, opt  # noqa: F401

TOOLS: dict[str, Callable[[], int | None]] = {"kitsune-opt": kitsune_opt.main, "filecheck": filecheck}


def serve(name: str) -> None:
    """Until the process that started this one is gone."""
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind("\0" + name)
        listening.listen(64)
        listening.settimeout(1.0)
        print("ready", flush=True)
        while os.getppid() == parent:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                connection = None
            if connection is not None and os.fork() == 0:
                listening.close()
                _answer(connection)
            if connection is not None:
                connection.close()
            _bury()


def _bury() -> None:
    """Takes note of forks that ended, so that their time counts as this process's."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _answer(connection: socket.socket) -> None:
    """One command, in a fork, which it ends."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
    content, streams, _, _ = socket.recv_fds(connection, 1, 3)
    content += connection.recv(size - 1, socket.MSG_WAITALL)
    folder, environment, arguments = marshal.loads(content)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    try:
        code = TOOLS[arguments[0]]()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    ctypes.CDLL(None).fflush(None)
    connection.send(bytes([code or 0]))
    os._exit(0)


def main() -> None:
    for name in PASSES:
        find(name)
    for dialect in ("arith", "func", "gpu", "linalg", "llvm", "math", "memref", "nvvm", "scf", "tensor", "vector"):
        importlib.import_module(f"torch_mlir.dialects.{dialect}")
    mlir.context()
    gc.collect()
    gc.freeze()
    serve(sys.argv[1])


if __name__ == "__main__":
    main()
