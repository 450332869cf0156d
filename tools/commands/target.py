"""kitsune target: the machines that plans are made for."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from .console import print_json


def add(subparsers: Any) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("target", help="list the targets, or show one")
    parser.add_argument("name", nargs="?", metavar="NAME|FILE", help="the target to show")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    from kitsune_mlir.planning import target

    if options.name is None:
        found = [target.load(name) for name in target.names()]
        if options.json:
            print_json([asdict(machine) for machine in found])
        else:
            for machine in found:
                print(f"{machine.name:<10} {machine.kind:<4} {machine.description}")
        return 0
    machine = target.load(options.name)
    if options.json:
        print_json(asdict(machine))
    else:
        for key, value in asdict(machine).items():
            print(f"{key:<16} {value}")
    return 0
