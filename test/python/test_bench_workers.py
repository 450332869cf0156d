"""Tasks in processes that may die: each death, hang or process that says it is of no more use costs one task."""

import os
import signal
import time

from bench.workers import Last, Lost, each


def work(task):
    kind, number = task
    if kind == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(60)
    if kind == "spoil":
        raise Last("a broken context")
    return number * 2, os.getpid()


def test_each_death_costs_one_task():
    tasks = [("work", 1), ("die", 2), ("work", 3), ("work", 4), ("spoil", 5), ("work", 6), ("hang", 7)]
    found = {number: result for (_, number), result in each(work, tasks, 1, 3)}
    assert {n: result[0] for n, result in found.items() if isinstance(result, tuple)} == {1: 2, 3: 6, 4: 8, 6: 12}
    assert isinstance(found[2], Lost) and str(found[2]) == "its process ended with status -11"
    assert found[5] == "a broken context"
    assert isinstance(found[7], Lost) and str(found[7]) == "took more than 3 s"
    first, second, third, fourth = (found[n][1] for n in (1, 3, 4, 6))
    assert second == third and len({first, second, fourth}) == 3


def test_the_time_to_start_is_no_tasks():
    """A process imports what its work needs, which takes longer here than a task may."""
    import slow_to_start  # here, for all would wait at the head of the file

    assert dict(each(slow_to_start.work, ["one", "two"], 1, slow_to_start.SECONDS)) == {"one": "one!", "two": "two!"}
