"""Tasks in processes that may die or hang: each is then replaced, and the others go on."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

_CONTEXT = multiprocessing.get_context("spawn")  # a fork would copy torch's threads and a GPU's context
START_SECONDS = 600.0  # to import what `work` needs, on a machine with much else to do
LAST_WORDS_SECONDS = 5.0


class Lost(Exception):
    """The process of a task died, or took too long and was ended."""


class Last(Exception):
    """Raised by `work` in place of returning `result`, when its process is of no use for further tasks."""

    def __init__(self, result: Any):
        super().__init__(result)
        self.result = result


class Worker:
    """A process that runs `work`, a function of a module, on one task after another, each of which may take so many
    `seconds`. The time to start is not counted: it is that of imports, and says nothing of a task."""

    def __init__(self, work: Callable[[Any], Any], seconds: float):
        self._work, self._seconds = work, seconds
        self._process: Any = None
        self._pipe: Connection | None = None

    def run(self, task: Any) -> Any:
        """What `work` gives for a task. Raises Lost, and starts anew with the next task."""
        starts = self._process is None
        if starts:
            self._pipe, theirs = _CONTEXT.Pipe()
            self._process = _CONTEXT.Process(target=_serve, args=(self._work, theirs))
            self._process.start()
            theirs.close()
        assert self._pipe is not None
        try:
            if starts:
                self._wait_for_start(self._pipe)
            self._pipe.send(task)
            if self._pipe.poll(self._seconds):
                result, useful = self._pipe.recv()
                if not useful:
                    self.close()
                return result
            said = f"took more than {self._seconds:g} s"
        except (EOFError, OSError):
            self._process.join(LAST_WORDS_SECONDS)
            said = f"its process ended with status {self._process.exitcode}"
        self.close()
        raise Lost(said)

    def _wait_for_start(self, pipe: Connection) -> None:
        if not pipe.poll(START_SECONDS):
            self.close()
            raise Lost(f"its process did not start within {START_SECONDS:g} s")
        pipe.recv()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = self._pipe = None


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    """Says that it is there, then answers tasks."""
    pipe.send(None)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((work(task), True))
        except Last as last:
            pipe.send((last.result, False))
            return


def each(work: Callable[[Any], Any], tasks: Iterable[Any], workers: int, seconds: float) -> Iterator[tuple[Any, Any]]:
    """(task, what `work` gives for it, or Lost) in the order in which they are done. Tasks are taken one by one, so
    they may be what another such call gives."""
    waiting, done = iter(tasks), queue.SimpleQueue[Any]()
    taking = threading.Lock()

    def serve() -> None:
        worker = Worker(work, seconds)
        try:
            while True:
                with taking:
                    task = next(waiting, done)
                if task is done:
                    return
                try:
                    done.put((task, worker.run(task)))
                except Lost as error:
                    done.put((task, error))
        finally:
            worker.close()
            done.put(None)

    for _ in range(workers):
        threading.Thread(target=serve, daemon=True).start()
    left = workers
    while left:
        if (found := done.get()) is None:
            left -= 1
        else:
            yield found
