"""The kitsune-opt command; tools/opt.py is what it does. Imports nothing that takes time by itself, so that an
interrupt in the first moments is answered like a later one."""

from __future__ import annotations

import sys

from .commands.console import ending_at_interrupts, guarded


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; gives the exit code: 0, or 1 after an error, a failed pass or an unmet expectation."""
    arguments = sys.argv[1:] if argv is None else argv

    def run() -> int:
        with ending_at_interrupts():
            from .opt import main as opt
        return opt(arguments)

    return guarded("kitsune-opt", arguments, run)


if __name__ == "__main__":
    sys.exit(main())
