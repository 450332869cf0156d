"""A module that takes longer to import than its work may, as torch does on a busy machine."""

import time

SECONDS = 2.0  # that a task may take
time.sleep(1.25 * SECONDS)


def work(task: str) -> str:
    return f"{task}!"
