"""kitsune compile: a model to an artifact, and its plan."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kitsune_mlir.errors import UserError

from .console import MODEL_HELP, add_model_arguments, compile_model, file_name, print_json


def add(subparsers: Any) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("compile", help="compile a model, print its plan, save the artifact")
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--target", action="append", metavar="NAME|FILE", help="may be repeated (default: cpu)")
    parser.add_argument("-o", "--output", type=file_name, metavar="FILE", help="save the artifact")
    parser.add_argument("--save-ir", type=file_name, metavar="FOLDER", help="write the IR after every pass there")
    add_model_arguments(parser)
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    if options.output and not Path(options.output).absolute().parent.is_dir():
        raise UserError(f"cannot write {options.output}: its folder does not exist")
    compiled = compile_model(options)
    if options.save_ir:
        _save_ir(compiled, Path(options.save_ir))
    if options.output:
        compiled.save(options.output)
    if options.json:
        plans = list(compiled.plans.values())
        print_json(plans[0] if len(plans) == 1 else plans)
        return 0
    print(compiled.report())
    print(f"\ncompiled in {sum(compiled.seconds.values()):.1f} s")
    if options.output:
        mib = Path(options.output).stat().st_size / 2**20
        print(f"saved {options.output} ({mib:.1f} MiB), digest {compiled.digest}")
    return 0


def _save_ir(compiled: Any, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, stage in enumerate(compiled.stages):
            (folder / f"{number:02}-{stage.replace(':', '-')}.mlir").write_text(compiled.mlir(stage))
    except OSError as error:
        raise UserError(f"cannot write the IR to {folder}: {error.strerror}") from error
