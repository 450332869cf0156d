"""kitsune: compile models into pipelines, run them, and see what was done.

kitsune compile model.pt2 --target sm_90a -o model.kitsune
kitsune run model.kitsune --input inputs.npz
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

import kitsune_mlir

from .commands.console import Parser, guarded, is_debug

COMMANDS = ("compile", "run", "bench", "report", "doctor", "target")  # each a file in tools/commands


def main(argv: list[str] | None = None) -> int:
    """Runs one command; gives the exit code: 0, or 1 with one sentence on stderr."""
    arguments = sys.argv[1:] if argv is None else argv
    return guarded("kitsune", arguments, lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    parser = Parser(prog="kitsune", description="Compiles PyTorch models into spatial pipelines.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {kitsune_mlir.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = import_module(f".commands.{name}", __package__).add(subparsers)
        command.add_argument("--debug", action="store_true", help="show tracebacks (or set KITSUNE_DEBUG=1)")
    options = parser.parse_args(arguments)
    if not is_debug(arguments):
        warnings.simplefilter("ignore")  # deprecations inside torch say nothing to its user
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
