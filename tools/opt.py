"""kitsune-opt: runs passes, ours and upstream's, over MLIR, with mlir-opt's conventions.

    kitsune-opt model.mlir --partition-dataflow --canonicalize
    kitsune-opt --pass-pipeline='builtin.module(partition-dataflow,func.func(cse))' < model.mlir

IR goes to stdout (or -o), everything else to stderr. Input is text or bytecode.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from functools import partial
from pathlib import Path

from kitsune_mlir import deep_stack, files, mlir
from kitsune_mlir.errors import KitsuneError, UserError
from kitsune_mlir.mlir import PassManager, ir
from kitsune_mlir.passes import PASSES, find, pipeline

from .commands.console import Parser, file_name
from .diagnostics import BUFFER, Collector, check, expectations

BYTECODE = b"ML\xefR"
SPLIT_MARK = "// -----"
EMIT = ("mlir", "bytecode", "llvm", "ptx", "plan", "dot")


def main(argv: list[str]) -> int:
    """Runs the tool; gives the exit code: 0, or 1 after an error, a failed pass or an unmet expectation. Raises what
    is wrong with the command line or the files."""
    return _run(*_parser().parse_known_args([_two_dashes(text) for text in argv]))


def _run(options: argparse.Namespace, flags: list[str]) -> int:
    if options.list_passes:
        _list_passes()
        return 0
    if options.show_dialects:
        print(", ".join(mlir.dialect_names(mlir.context())))
        return 0
    elements = _elements(options, flags)
    data = _read(options.input)
    is_text = not data.startswith(BYTECODE)
    chunks = _chunks(_decode(data, options.input), options.split_input_file) if is_text else [(1, data)]
    results = [_process(chunk, first_line, elements, options) for first_line, chunk in chunks]
    output = (b"" if options.emit == "bytecode" else b"\n" + SPLIT_MARK.encode() + b"\n").join(
        text for text, _ in results if text
    )
    _write(options.o, output)
    return 0 if all(ok for _, ok in results) else 1


def _process(
    chunk: str | bytes, first_line: int, elements: list[pipeline.Element], options: argparse.Namespace
) -> tuple[bytes, bool]:
    """One chunk's output and whether all went well; diagnostics are printed or checked here."""
    ctx = mlir.context()
    ctx.allow_unregistered_dialects = options.allow_unregistered_dialect
    ctx.emit_error_diagnostics = True
    collector = Collector()
    handler = ctx.attach_diagnostic_handler(collector.take)
    output = b""
    with mlir.collect_remarks() as remarks:
        try:
            with ctx:
                module = _parse(chunk, first_line, ctx, options)
            run = partial(pipeline.run, module, elements, lambda manager: _configure(manager, options))
            deep_stack.with_room(deep_stack.depth(module), run)
            output = _emit(module, options)
        except ir.MLIRError as error:
            if not collector.failed:
                collector.error(mlir.first_line(error))
        except KitsuneError as error:
            if options.debug:
                traceback.print_exc()
            collector.error(str(error))
        except Exception as error:  # a bug of ours that nothing caught
            if options.debug:
                traceback.print_exc()
            collector.error(f"internal error: {type(error).__name__}: {error} (--debug shows where)")
    collector.remarks(remarks)
    handler.detach()
    if options.verify_diagnostics:
        return output, _verify(chunk, first_line, collector, options)
    for diagnostic in collector.found:
        print(diagnostic.text(options.input), file=sys.stderr)
    return output, not collector.failed


def _parse(chunk: str | bytes, first_line: int, ctx: ir.Context, options: argparse.Namespace) -> ir.Module:
    if options.input != "-" and not options.split_input_file:
        return ir.Module.parseFile(options.input, ctx)  # locations then carry the file's name
    # The padding keeps line numbers right in a chunk that does not begin the file.
    return ir.Module.parse(chunk if isinstance(chunk, bytes) else "\n" * (first_line - 1) + chunk, ctx)


def _verify(chunk: str | bytes, first_line: int, collector: Collector, options: argparse.Namespace) -> bool:
    if isinstance(chunk, bytes):
        raise UserError("--verify-diagnostics reads comments, which bytecode does not keep; give it text")
    names = (options.input, BUFFER)
    strict = options.verify_diagnostics == "all"
    problems = check(collector.found, expectations(chunk.split("\n"), first_line), names, strict)
    for problem in problems:
        print(problem, file=sys.stderr)
    return not problems


def _emit(module: ir.Module, options: argparse.Namespace) -> bytes:
    if options.verify_roundtrip:
        _round_trip(module)
    if options.emit == "mlir":
        text = module.operation.get_asm(
            enable_debug_info=options.mlir_print_debuginfo,
            print_generic_op_form=options.mlir_print_op_generic,
            use_local_scope=options.mlir_print_local_scope,
            large_elements_limit=options.mlir_elide_elementsattrs_if_larger,
        )
        return text.encode() if text.endswith("\n") else text.encode() + b"\n"
    if options.emit == "bytecode":
        return mlir.bytecode(module)
    from . import emit

    return emit.text(module, options.emit, options.target).encode()


def _round_trip(module: ir.Module) -> None:
    ctx = mlir.context()
    ctx.allow_unregistered_dialects = module.context.allow_unregistered_dialects
    for form, source in (
        ("text", module.operation.get_asm(enable_debug_info=True)),
        ("bytecode", mlir.bytecode(module)),
    ):
        again = mlir.parse(source, ctx, f"the {form} form of the result")
        if again.operation.get_asm() != module.operation.get_asm():
            raise UserError(f"the module changes when it is written as {form} and read again")


def _configure(manager: PassManager, options: argparse.Namespace) -> None:
    if options.mlir_timing:
        manager.enable_timing()
    before, after = options.mlir_print_ir_before_all, options.mlir_print_ir_after_all
    change, failure = options.mlir_print_ir_after_change, options.mlir_print_ir_after_failure
    if before or after or change or failure:
        sys.stdout.flush()
        manager.enable_ir_printing(
            print_before_all=before,
            print_after_all=after or change,
            print_after_change=change,
            print_after_failure=failure,
            large_elements_limit=options.mlir_elide_elementsattrs_if_larger,
            tree_printing_dir_path=options.mlir_print_ir_tree_dir,
        )


def _elements(options: argparse.Namespace, flags: list[str]) -> list[pipeline.Element]:
    unknown = [text for text in flags if not text.startswith("--")]
    if unknown:
        raise UserError(f"unexpected argument '{unknown[0]}': kitsune-opt takes one input file and --passes")
    if options.pass_pipeline is not None:
        if flags:
            raise UserError(f"--pass-pipeline cannot be joined with the flag {flags[0]}")
        return pipeline.read(options.pass_pipeline)
    elements = []
    for text in flags:
        name, _, value = text[2:].partition("=")
        elements.append(pipeline.flag(name, value, options.target))
    return elements


def _chunks(text: str, split: bool) -> list[tuple[int, str | bytes]]:
    """The chunks with the number of their first line."""
    if not split:
        return [(1, text)]
    chunks: list[tuple[int, str | bytes]] = []
    lines: list[str] = []
    start = 1
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(SPLIT_MARK):
            chunks.append((start, "\n".join(lines)))
            lines, start = [], number + 1
        else:
            lines.append(line)
    return [*chunks, (start, "\n".join(lines))]


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"cannot open input file '{name}': {_reason(error)}") from error


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"input file '{name}' is neither MLIR text (UTF-8) nor MLIR bytecode") from error


def _write(name: str, output: bytes) -> None:
    if name == "-":
        sys.stdout.buffer.write(output)
    elif output:
        with files.output(name) as file:
            file.write(output)


def _reason(error: OSError) -> str:
    return "no such file" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()


def _list_passes() -> None:
    import dataclasses

    for name in PASSES:
        cls = find(name)
        summary = (cls.__doc__ or "").strip().partition("\n")[0]
        print(f"  --{name:<26} {summary}")
        for field in dataclasses.fields(cls):
            option = field.name.replace("_", "-")
            print(f"      {option}=<{field.type}>".ljust(32) + f"default: {field.default!r}")
    print("Upstream passes go by their own names, such as --canonicalize or --linalg-fuse-elementwise-ops.")


def _two_dashes(text: str) -> str:
    """LLVM's tools take -flag for --flag."""
    return "-" + text if len(text) > 2 and text[0] == "-" and text[1] != "-" and not text.startswith("-o") else text


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="kitsune-opt",
        description='Runs passes over MLIR: every --pass-name[="opt=val ..."] in order, ours and upstream\'s.',
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", nargs="?", default="-", help="MLIR text or bytecode; - is standard input")
    add("-o", default="-", type=file_name, metavar="FILE", help="output file; - is standard output")
    add("--pass-pipeline", metavar="TEXT", help="a textual pipeline, builtin.module(...)")
    add("--list-passes", action="store_true", help="list kitsune's passes and their options")
    add("--emit", choices=EMIT, default="mlir", help="what to print after the passes")
    add("--target", default="", metavar="NAME|FILE", help="target description for passes and --emit")
    add("--split-input-file", action="store_true", help=f"treat chunks between '{SPLIT_MARK}' lines apart")
    add(
        "--verify-diagnostics",
        nargs="?",
        const="all",
        choices=("all", "only-expected"),
        help="check diagnostics against expected-error {{...}} comments",
    )
    add("--verify-roundtrip", action="store_true", help="check that the result survives text and bytecode")
    add("--allow-unregistered-dialect", action="store_true", help="accept operations of unknown dialects")
    add("--show-dialects", action="store_true", help="print the known dialects")
    add("--mlir-timing", action="store_true", help="print the time each pass takes")
    add("--mlir-print-ir-before-all", action="store_true")
    add("--mlir-print-ir-after-all", action="store_true")
    add("--mlir-print-ir-after-change", action="store_true")
    add("--mlir-print-ir-after-failure", action="store_true")
    add("--mlir-print-ir-tree-dir", metavar="FOLDER", help="write the printed IR there, a file a pass")
    add("--mlir-print-debuginfo", action="store_true", help="print locations")
    add("--mlir-print-op-generic", action="store_true", help="print the generic form of every operation")
    add("--mlir-print-local-scope", action="store_true", help="print attributes inline, without aliases")
    add("--mlir-elide-elementsattrs-if-larger", type=int, metavar="N", help="elide constants above N elements")
    add("--debug", action="store_true", default=os.environ.get("KITSUNE_DEBUG") == "1", help="tracebacks on errors")
    return parser
