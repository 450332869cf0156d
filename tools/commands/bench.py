"""kitsune bench: models on this machine's GPU beside every way torch has to run them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from kitsune_mlir import files
from kitsune_mlir.bench import cases, shapes
from kitsune_mlir.errors import KitsuneError, UserError

from .console import add_precision, file_name, natural

MODEL_HELP = "a case (see --list), module:function returning (nn.Module, args), or a .pt2 file"


def add(subparsers: Any) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("bench", help="time models on the GPU beside torch")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--suite", action="append", default=[], choices=cases.SUITES)
    parser.add_argument("--list", action="store_true", help="name the cases of each suite")
    parser.add_argument("--target", default="sm_90a", metavar="NAME|FILE", help="to compile for (default: sm_90a)")
    parser.add_argument(
        "--dtype",
        choices=tuple(cases.DTYPES),
        help="default: the type of everyday/NAME, fields/NAME, net-SEED and your own models, else bf16",
    )
    add_precision(parser)
    parser.add_argument("--modes", metavar="MODE,...", help=f"torch's; default: {','.join(cases.TORCH_MODES)}")
    parser.add_argument("--repeat", type=int, metavar="N", help="timed runs of each side (default: 30; --fast: 10)")
    parser.add_argument("--seconds", type=float, help="for the timed runs of a case (default: 20; --fast: 2)")
    parser.add_argument("--fast", action="store_true", help="few runs, beside eager and graph only; a line a case")
    parser.add_argument("--isolate", action="store_true", help="a process for each case")
    parser.add_argument("--limit", type=float, help="seconds to make one side ready (default: 180; --fast: 45)")
    parser.add_argument("--cold", action="store_true", help="only with the L2 overwritten before each run")
    parser.add_argument("--warm", action="store_true", help="only with the L2 as the last run left it")
    parser.add_argument("--option", action="append", default=[], metavar="PASS=OPTIONS", help="of our passes; repeat")
    parser.add_argument("--peak", metavar="TFLOPS,GBPS", help="rates for the floor (default: the target's)")
    parser.add_argument("--seed", type=natural, default=0, help="for weights and inputs")
    parser.add_argument("--kernels", action="store_true", help="time each of our kernels beside its prediction")
    parser.add_argument("--dram", action="store_true", help="count DRAM bytes of eager and ours with ncu")
    parser.add_argument("--json", type=file_name, metavar="FILE", help="write everything there, after each case")
    parser.add_argument("--markdown", type=file_name, metavar="FILE", help="write the tables there, after each case")
    parser.add_argument("--timeout", type=float, help="seconds for a case (default: 900; --fast: 90)")
    parser.add_argument("--child", choices=("measure", "eager", "kitsune"), help=argparse.SUPPRESS)  # bench/children.py
    parser.add_argument("--records", help=argparse.SUPPRESS)  # the folder of a child's records
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    if options.list:
        from kitsune_mlir.bench import everyday, fields, zoo

        for suite in cases.SUITES:
            print(f"{suite}: {' '.join(cases.suite(suite))}")
        stressed = {zoo.PREFIX + name: model.stresses for name, model in zoo.MODELS.items()}
        whole = {everyday.PREFIX + name: model.about for name, model in everyday.MODELS.items()}
        whole |= {fields.PREFIX + name: model.about for name, model in fields.MODELS.items()}
        for name, origin in (shapes.GEMMS | stressed | whole).items():
            print(f"  {name}: {origin}")
        return 0
    names = list(dict.fromkeys([*options.models, *(n for suite in options.suite for n in cases.suite(suite))]))
    if not names:
        raise UserError("name at least one model or case, or a --suite (--list names them)")
    for path in filter(None, (options.json, options.markdown)):
        if not Path(path).absolute().parent.is_dir():
            raise UserError(f"cannot write {path}: its folder does not exist")
    _set_defaults(options)
    wanted = [cases.find(name, options.dtype) for name in names]
    from kitsune_mlir.bench.device import Gpu

    settings, machine = _settings(options), Gpu()
    if options.child == "measure":
        return _measure_here(wanted, machine, settings, options)
    if options.child:
        from kitsune_mlir.bench import dram

        dram.run(wanted[0], machine, settings, options.child)
        return 0
    return measure_all([case.name for case in wanted], machine, settings, options)


def measure_all(names: list[str], machine: Any, settings: Any, options: argparse.Namespace) -> int:
    """Measures and prints every case; gives 1 when ours was wrong or failed in one."""
    from kitsune_mlir.bench import children, dram, table

    print(f"{machine.name}, {_versions()}", flush=True)
    arguments = _arguments(settings, options)
    records: list[dict[str, Any]] = []
    for together in [[name] for name in names] if options.isolate else [names]:
        for record in children.measure(arguments, together, options.timeout):
            if options.dram and "sides" in record:
                alone = [record["case"], *arguments]
                record["dram"] = {side: dram.moved(alone, side, options.timeout) for side in dram.SIDES}
            records.append(record)
            brief = options.fast and not options.kernels
            told = table.line(record, settings.temperatures[0]) if brief else "\n" + table.case_text(record)
            print(told, flush=True)
            about = _about(machine, settings)
            _write(options.json, json.dumps(about | {"cases": records}, indent=2))
            tables = [table.markdown(records, temperature) for temperature in settings.temperatures]
            _write(options.markdown, "\n\n".join([_heading(about), *tables]) + "\n")
    for temperature in settings.temperatures:
        print("\n" + table.summary(records, temperature))
    if setup := next((record["setup"] for record in records if "setup" in record), None):
        print(f"\nOnce a process, in none of these: imports {setup['imports']:.1f} s, the GPU {setup['gpu']:.1f} s.")
    return int(any(_is_bad(record.get("sides", {})) for record in records))


def _is_bad(sides: dict[str, Any]) -> bool:
    """Whether ours failed, or gave wrong numbers even if only as a CUDA graph."""
    statuses = [sides.get(name, {}).get("status") for name in ("kitsune", "kitsune-graph")]
    return statuses[0] != "ok" or statuses[1] == "wrong"


def _measure_here(wanted: list[cases.Case], machine: Any, settings: Any, options: argparse.Namespace) -> int:
    """A child's work: the record of each case for its parent, as long as the GPU lives."""
    from kitsune_mlir.bench import children

    for number, case in enumerate(wanted):
        record = _record(case, machine, settings, options)
        try:
            machine.clear()
        except Exception:  # it died of something that no side was blamed for; the next case needs a new process
            record[children.LOST] = True
        children.report(options.records, number, record)
        if record.get(children.LOST):
            return 1
    return 0


def _record(case: cases.Case, machine: Any, settings: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one case, in this process; {case, said} when it failed as a whole."""
    from kitsune_mlir.bench import children
    from kitsune_mlir.bench.device import GpuLostError
    from kitsune_mlir.bench.measure import measure

    start = time.perf_counter()

    def say(what: str) -> None:
        children.doing(options.records, what)
        if not options.fast:
            print(f"{case.name}: {what} ({time.perf_counter() - start:.1f} s)", file=sys.stderr, flush=True)

    try:
        return measure(case, machine, settings, say)
    except GpuLostError as error:
        return {"case": case.name, "said": str(error), children.LOST: True}
    except KitsuneError as error:
        return {"case": case.name, "said": str(error)}
    except Exception as error:  # such as too little memory: a result like others
        return {"case": case.name, "said": f"{type(error).__name__}: {error}"}


def _set_defaults(options: argparse.Namespace) -> None:
    """Fills in what was not asked for."""
    usual = {"modes": ",".join(cases.TORCH_MODES), "repeat": 30, "seconds": 20.0, "limit": 180.0, "timeout": 900.0}
    fast = {"modes": ",".join(cases.PLAIN_MODES), "repeat": 10, "seconds": 2.0, "limit": 45.0, "timeout": 90.0}
    for name, value in (fast if options.fast else usual).items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def _arguments(settings: Any, options: argparse.Namespace) -> list[str]:
    """Those of the command, but for its cases and what becomes of the records."""
    found = ["--target", options.target, "--modes", options.modes]
    found += ["--repeat", str(options.repeat), "--seconds", str(options.seconds)]
    found += ["--limit", str(options.limit), "--seed", str(options.seed)]
    found += ["--fast"] if options.fast else []
    found += ["--kernels"] if options.kernels else []
    found += [f"--{temperature}" for temperature in settings.temperatures]
    found += ["--dtype", options.dtype] if options.dtype else []
    found += ["--matmul-precision", options.matmul_precision] if options.matmul_precision else []
    found += ["--peak", options.peak] if options.peak else []
    return found + [part for option in options.option for part in ("--option", option)]


def _settings(options: argparse.Namespace) -> Any:
    from kitsune_mlir.bench.floor import Rates
    from kitsune_mlir.bench.measure import Settings
    from kitsune_mlir.planning import target

    target.load(options.target)
    modes = tuple(dict.fromkeys(mode for mode in options.modes.split(",") if mode))
    if unknown := [mode for mode in modes if mode not in cases.TORCH_MODES]:
        raise UserError(f"there is no mode '{unknown[0]}': give some of {', '.join(cases.TORCH_MODES)}")
    if options.repeat < 1:
        raise UserError(f"--repeat must be at least 1, found {options.repeat}")
    only = [t for t in ("warm", "cold") if getattr(options, t)]
    try:
        rates = Rates(*map(float, options.peak.split(","))) if options.peak else None
    except (TypeError, ValueError):
        raise UserError(f"--peak wants TFLOP/s and GB/s, such as 989,3350, found '{options.peak}'") from None
    return Settings(
        target=options.target,
        modes=sorted(modes, key=cases.TORCH_MODES.index),
        temperatures=only or ("warm", "cold"),
        repeat=options.repeat,
        timing_seconds=options.seconds,
        limit_seconds=options.limit,
        options=pass_options(options.option),
        rates=rates,
        seed=options.seed,
        kernels=options.kernels,
        matmul_precision=options.matmul_precision,
    )


def pass_options(given: list[str]) -> dict[str, str]:
    """["place-stages=shape=spatial", "place-stages=tile-rows=64"] -> {"place-stages": "shape=spatial tile-rows=64"}"""
    found: dict[str, str] = {}
    for option in given:
        name, equals, value = option.partition("=")
        if not equals or not value:
            raise UserError(f"--option wants PASS=OPTIONS, such as place-stages=shape=spatial, found '{option}'")
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def _versions() -> str:
    import torch

    import kitsune_mlir

    return f"torch {torch.__version__}, kitsune-mlir {kitsune_mlir.__version__}"


def _about(machine: Any, settings: Any) -> dict[str, Any]:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    found = {"machine": machine.name, "versions": _versions(), "time": when}
    found |= {"target": settings.target, "seed": settings.seed, "options": dict(settings.options)}
    return found | {"matmul_precision": settings.matmul_precision}


def _heading(about: dict[str, Any]) -> str:
    asked = f"f32 products in {about['matmul_precision']} precision, " if about["matmul_precision"] else ""
    return f"{about['machine']}, {about['versions']}, {about['target']}, {asked}{about['time']}:"


def _write(path: str | None, content: str) -> None:
    if path is not None:
        with files.output(path) as file:
            file.write(content.encode())
