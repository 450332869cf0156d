"""A machine for kitsune_mlir.bench that is this CPU with a clock of the test's."""

from itertools import count


class Clocked:
    """A machine whose runs take as long as the test says: milliseconds by the place of a side among those timed."""

    name = "a clock"

    def __init__(self, *milliseconds):
        self.milliseconds = milliseconds
        self.turns = count()
        self.asked = []

    def __eq__(self, other):
        """All are one machine, which the process sets up once."""
        return isinstance(other, Clocked)

    def __hash__(self):
        return hash(Clocked)

    def move(self, value):
        return value

    def capture(self, prepare, run):
        prepare()
        return run

    def time(self, call, cold):
        call()
        self.asked.append(cold)
        return self.milliseconds[next(self.turns) % len(self.milliseconds)]

    def wait(self):
        pass

    def clear(self):
        self.cleared = True
