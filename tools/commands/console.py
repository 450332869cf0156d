"""What the commands share on the terminal: progress, JSON, the arguments of several."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from kitsune_mlir.errors import KitsuneError, UserError

PRECISIONS = ("highest", "high", "medium")  # precision.CHOICES, which would load MLIR
MODEL_HELP = "a .pt2, .onnx or .mlir file, or module:function returning (nn.Module, args)"


# What to install for a module that is missing.
PACKAGES = {
    "torch": "kitsune-mlir[torch]",
    "torch_mlir": "torch-mlir",
    "llvmlite": "llvmlite",
    "onnx": "onnx",
    "ml_dtypes": "ml-dtypes",
}


def guarded(program: str, arguments: Sequence[str], run: Callable[[], int]) -> int:
    """The exit code of `run`; whatever it raises becomes one sentence on stderr and a code other than 0."""
    try:
        code = run()
        print(end="", flush=True)
        return code
    except BrokenPipeError:  # the reader of our output went away, such as `head`
        _forget_stdout()
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if is_debug(arguments):
            traceback.print_exc()
        print(f"{program}: {_sentence(error)}", file=sys.stderr)
        return error.exit_code if isinstance(error, KitsuneError) else 1


@contextlib.contextmanager
def ending_at_interrupts() -> Iterator[None]:
    """While extension modules are loaded an interrupt ends the process at once, as it ends a C program: an exception in
    the middle of their initialisation would become another error, or a crash."""
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _sentence(error: Exception) -> str:
    """What to tell of an exception that ended a command."""
    if isinstance(error, KitsuneError):
        return f"error: {error}"
    if isinstance(error, MemoryError):
        return f"error: there is not enough memory{f': {error}' if str(error) else ''}"
    if isinstance(error, OSError) and error.filename:
        return f"error: cannot use '{error.filename}': {error.strerror}"
    if isinstance(error, OSError) and error.errno:  # without a name: of standard output
        _forget_stdout()
        return f"error: cannot write the output: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and (package := PACKAGES.get((error.name or "").partition(".")[0])):
        return f"error: this needs {error.name}, which is not installed: pip install '{package}'"
    return f"internal error: {type(error).__name__}: {error} (--debug shows where)"


def is_debug(arguments: Sequence[str]) -> bool:
    """Whether tracebacks are asked for."""
    return "--debug" in arguments or os.environ.get("KITSUNE_DEBUG") == "1"


def _forget_stdout() -> None:
    """Lets Python's own last flush of standard output succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Parser(argparse.ArgumentParser):
    """Answers a wrong command line like any other wrong input: one sentence, exit code 1."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: error: {message} ({self.prog} --help shows what there is)\n")


def file_name(text: str) -> str:
    """The type of an argument that names a file."""
    if not text:
        raise argparse.ArgumentTypeError("must name a file, found ''")
    return text


def natural(text: str) -> int:
    """The type of an argument that may be 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, found '{text}'")
    return int(text)


def positive(text: str) -> int:
    """The type of an argument that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, found '{text}'")
    return int(text)


def refuse_for_artifact(path: str, **given: Any) -> None:
    """Raises UserError for an option, by name, that says how to compile what is compiled already."""
    for name, value in given.items():
        if value:
            raise UserError(f"{path} is compiled already: --{name.replace('_', '-')} is for a model")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """--dtype, --matmul-precision, --deterministic and --json."""
    parser.add_argument("--dtype", choices=("f32", "bf16", "f16"), help="cast an nn.Module and its inputs first")
    add_precision(parser)
    said = "the same bits at each call: on a GPU rows by index in their order, on a CPU tile by tile in one thread"
    parser.add_argument("--deterministic", action="store_true", help=said)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_precision(parser: argparse.ArgumentParser) -> None:
    """--matmul-precision."""
    said = "of f32 products on tensor cores: as f32, or in tf32 (default: torch's own setting, highest)"
    parser.add_argument("--matmul-precision", choices=PRECISIONS, help=said)


def compile_model(options: argparse.Namespace) -> Any:
    """The model of a command's `model` and `target`, compiled as add_model_arguments ask."""
    with ending_at_interrupts():
        from kitsune_mlir.compiler import compile

    with progress(f"compiling {options.model}") as show:
        return compile(
            options.model,
            target=options.target or ["cpu"],
            dtype=options.dtype,
            matmul_precision=options.matmul_precision,
            deterministic=options.deterministic or None,
            progress=show,
        )


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Gives a function that shows the step at work on one line of stderr; silent unless that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    start = time.perf_counter()

    def show(step: str) -> None:
        sys.stderr.write(f"\r\033[K{what}: {step} ({time.perf_counter() - start:.1f} s)")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
