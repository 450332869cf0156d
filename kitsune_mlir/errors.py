"""The three kinds of error a caller can tell apart, and nothing else."""

from __future__ import annotations


class KitsuneError(Exception):
    """Base of every error this package raises on purpose.

    `message` is one sentence: what is wrong, where in the model (operator and source line, when
    known), and what to do about it.
    """

    exit_code = 1


class UserError(KitsuneError):
    """What was asked for is wrong: a missing file, a bad option, a wrong dtype or shape."""


class UnsupportedError(KitsuneError):
    """The request is sound, but this version cannot serve it; the message names the way out."""


class InternalError(KitsuneError):
    """Our own bug. `reproducer` is the path of a file that shows it, when one could be written."""

    def __init__(self, message: str, reproducer: str | None = None):
        self.reproducer = reproducer
        super().__init__(message + (f" (reproducer: {reproducer})" if reproducer else ""))
