"""Processes that may die: each death, hang or spoilt process costs one task."""

import os
import signal
import time

from bench.workers import Spoilt, Workers


def work(task):
    kind, number = task
    if kind == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(60)
    if kind == "fail":
        raise ValueError(f"no {number}")
    if kind == "spoil":
        raise Spoilt("a broken context")
    return number * 2, os.getpid()


def test_each_death_costs_one_task():
    tasks = [("work", 1), ("die", 2), ("work", 3), ("fail", 4), ("work", 5), ("spoil", 6), ("work", 7), ("hang", 8)]
    with Workers(work, 1, patience=5) as workers:
        answers = {answer.task[1]: answer for answer in workers.map(tasks)}
    assert {n: answer.value[0] for n, answer in answers.items() if answer.value} == {1: 2, 3: 6, 5: 10, 7: 14}
    assert answers[2].problem == "its process died (exit code -11)"
    assert answers[4].problem.startswith("ValueError: no 4 (test_bench_workers.py:")
    assert answers[6].problem.startswith("a broken context")
    assert answers[8].problem == "took more than 5 s"
    processes = [answers[n].value[1] for n in (1, 3, 5, 7)]
    assert processes[1] == processes[2] and len(set(processes)) == 3  # a failure alone replaces no process
