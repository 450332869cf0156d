"""kitsune: compile models into pipelines, run them, and see what was done.

kitsune compile model.pt2 --target sm_90a -o model.kitsune
kitsune run model.kitsune --input inputs.npz
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from importlib import import_module

import kitsune_mlir
from kitsune_mlir.errors import KitsuneError

from .commands.console import Parser

COMMANDS = ("compile", "run", "bench", "report", "doctor", "target")  # each a file in tools/commands


def main(argv: list[str] | None = None) -> int:
    """Runs one command; gives the exit code: 0, or 1 with one sentence on stderr."""
    parser = Parser(prog="kitsune", description="Compiles PyTorch models into spatial pipelines.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {kitsune_mlir.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = import_module(f".commands.{name}", __package__).add(subparsers)
        command.add_argument("--debug", action="store_true", help="show tracebacks (or set KITSUNE_DEBUG=1)")
    options = parser.parse_args(argv)
    options.debug = options.debug or os.environ.get("KITSUNE_DEBUG") == "1"
    if not options.debug:
        warnings.simplefilter("ignore")  # deprecations inside torch say nothing to its user
    try:
        return int(options.run(options))
    except KitsuneError as error:
        if options.debug:
            traceback.print_exc()
        print(f"kitsune: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output went away, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a bug of ours that nothing caught
        if options.debug:
            traceback.print_exc()
        print(f"kitsune: internal error: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
