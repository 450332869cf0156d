"""A/B of option sets: ab.py [--dtype bf16] [--precision high] LABEL=pass:opts[,pass:opts] ... -- CASE..."""

import concurrent.futures as futures
import multiprocessing as mp
import os
import statistics
import sys
import tempfile
import time


def compile_one(job):
    case, label, options, dtype, precision, folder = job
    import torch

    import kitsune_mlir
    from kitsune_mlir.bench import cases

    try:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        module, args, shapes = cases.find(case, dtype).make()
        compiled = kitsune_mlir.compile(
            module, args, target="sm_90a", dynamic_shapes=shapes, options=options, matmul_precision=precision
        )
        path = os.path.join(folder, f"{case.replace('/', '_')}.{label}")
        compiled.save(path)
        launch = "; ".join(f"{x.get('form', '?')} {x.get('us', x.get('predicted_us', ''))}" for x in compiled.plan["launches"])
        return case, label, path, launch, ""
    except Exception as error:  # noqa: BLE001
        return case, label, None, "", f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"


def main():
    arguments, dtype, precision = sys.argv[1:], "bf16", None
    while arguments[0].startswith("--") and arguments[0] != "--":
        if arguments[0] == "--dtype":
            dtype = arguments[1]
        elif arguments[0] == "--precision":
            precision = arguments[1]
        arguments = arguments[2:]
    split = arguments.index("--")
    sets, names = {}, arguments[split + 1 :]
    for one in arguments[:split]:
        label, _, options = one.partition("=")
        sets[label] = dict(option.split(":", 1) for option in options.split(",") if option)
    folder = tempfile.mkdtemp()
    jobs = [(case, label, options, dtype, precision, folder) for case in names for label, options in sets.items()]
    paths = {}
    begun = time.time()
    context = mp.get_context("spawn")
    with futures.ProcessPoolExecutor(min(14, len(jobs)), mp_context=context) as pool:
        for case, label, path, launch, said in pool.map(compile_one, jobs):
            paths[case, label] = path, launch, said
    print(f"compiled in {time.time() - begun:.0f} s")
    import torch

    import kitsune_mlir
    from kitsune_mlir.bench import cases
    from kitsune_mlir.bench.device import Gpu
    from kitsune_mlir.bench.sides import tensors

    if precision:
        torch.set_float32_matmul_precision(precision)
    machine = Gpu()
    print(f"{'case':36s} {'torch':>9s} " + " ".join(f"{label:>9s}" for label in sets) + "  ratio to first; errors; launches")
    for case in names:
        torch.manual_seed(0)
        module, args, _ = cases.find(case, dtype).make()
        module = module.to("cuda").eval()
        args = tuple(x.to("cuda") for x in args)
        with torch.no_grad():
            wanted = tensors(module(*args))[0].float()
            calls, errors = {"torch": lambda: tensors(module(*args))}, {}
            for label in sets:
                path, launch, said = paths[case, label]
                if path is None:
                    print(case, label, said)
                    continue
                loaded = kitsune_mlir.load(path)
                calls[label] = lambda loaded=loaded: tensors(loaded(*args))
                found = calls[label]()[0].float()
                errors[label] = ((found - wanted).abs().max() / wanted.abs().max()).item()
            times, graphs = {}, {}
            for label, call in calls.items():
                many = 10

                def run(call=call):
                    for _ in range(many):
                        result = call()
                    return result

                graphs[label] = machine.capture(lambda: [call() for _ in range(3)], run)
                times[label] = []
            for _ in range(13):
                for label in calls:
                    times[label].append(machine.time(graphs[label], False) / many * 1e3)
            mid = {label: statistics.median(found) for label, found in times.items()}
            first = mid[next(label for label in sets if label in mid)]
            row = " ".join(f"{mid.get(label, float('nan')):9.2f}" for label in sets)
            ratios = " ".join(f"{mid[label] / first:5.3f}" for label in sets if label in mid)
            wrong = " ".join(f"{errors[label]:.0e}" for label in sets if label in errors)
            launches = " | ".join(paths[case, label][1] for label in sets)
            print(f"{case:36s} {mid['torch']:9.2f} {row}  {ratios}  {wrong}  {launches}", flush=True)
            del graphs, calls
        machine.clear()


if __name__ == "__main__":
    main()
