"""What can be done with a scheduled kernel (`dialects/schedule.py`) short of lowering it: run it in numpy."""

from .interpret import Program, ScheduleFault, run

__all__ = ["Program", "ScheduleFault", "run"]
