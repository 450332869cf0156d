"""kitsune report: the plan of a model or of an artifact."""

from __future__ import annotations

import argparse
from typing import Any

from .console import MODEL_HELP, add_model_arguments, compile_model, print_json, refuse_for_artifact


def add(subparsers: Any) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("report", help="print the plan of an artifact, or of a model")
    parser.add_argument("model", metavar="ARTIFACT|MODEL", help=f"a .kitsune file, or {MODEL_HELP}")
    parser.add_argument("--target", action="append", metavar="NAME|FILE", help="targets of a MODEL (default: cpu)")
    add_model_arguments(parser)
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    if options.model.endswith(".kitsune"):
        from kitsune_mlir.loaded import load

        given = {"target": options.target, "dtype": options.dtype, "matmul_precision": options.matmul_precision}
        refuse_for_artifact(options.model, **given)
        found = load(options.model)
    else:
        found = compile_model(options)
    if options.json:
        plans = list(found.plans.values())
        print_json(plans[0] if len(plans) == 1 else plans)
    else:
        print(found.report())
        if options.model.endswith(".kitsune"):
            print(f"\ndigest {found.digest}")
    return 0
