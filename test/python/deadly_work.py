"""What test_fuzz.py has worker processes do: a module that imports little, and takes longer
to import than a task may."""

import os
import time

SECONDS = 2.0  # that a task may take
time.sleep(1.25 * SECONDS)


def work(task: str) -> str:
    if task == "dies":
        os.kill(os.getpid(), 9)
    if task == "hangs":
        time.sleep(1000)
    return f"{task}!"
