"""Starts the server for lit, which reads its configuration once for each path that it is given."""

import atexit
import functools
import os
import subprocess
import sys

FOLDER = os.path.dirname(__file__)


@functools.cache
def client() -> str:
    """What stands before the name of a command."""
    name, started_by = f"kitsune-lit-{os.getpid()}", os.getpid()
    server = subprocess.Popen([sys.executable, os.path.join(FOLDER, "server.py"), name], stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()  # it is ready

    @atexit.register
    def end() -> None:
        if os.getpid() == started_by:  # not in a worker of lit
            server.terminate()
            server.wait()

    return f"{sys.executable} -S -E {os.path.join(FOLDER, 'client.py')} {name}"
