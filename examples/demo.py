"""The main job from end to end: `make demo`.

Trains a small coordinate network on a photograph, exports it to .pt2 with a dynamic number of rows,
compiles it for the CPU and for a Hopper GPU, renders the photograph with the compiled pipeline, and
compares with PyTorch. Pictures, plan, PTX and artifact are left in the output folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from demo_network import CoordinateNetwork, pixel_grid, train
from matplotlib import cbook
from PIL import Image

import kitsune_mlir
from kitsune_mlir import drawing

TOLERANCE = 1e-4  # relative error in f32
GPU = "sm_90a"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for what is made")
    parser.add_argument("--seconds", type=float, default=45, help="training time")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)

    photo = Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    width, height = photo.size
    wanted = torch.from_numpy(np.asarray(photo).reshape(-1, 3).copy()).float() / 255
    points = pixel_grid(height, width)

    heading(f"1. train a coordinate network on a {width} x {height} photograph for {options.seconds:g} s")
    network, steps = train(points, wanted, options.seconds, _teller(options.seconds))
    print(f"   {steps} steps of 1024 pixels, {sum(p.numel() for p in network.parameters()):,} parameters")

    heading("2. export, compile")
    model = export(network, out / "photo.pt2")
    compiled = kitsune_mlir.compile(model, target=["cpu", GPU])
    for step, seconds in compiled.seconds.items():
        print(f"   {step:<32} {seconds:6.2f} s")
    leave(compiled, out)

    heading("3. the plan")
    print(indent(compiled.report()))

    heading("4. render with the artifact, compare with PyTorch")
    with torch.no_grad():
        reference, seconds = timed(lambda: network(points))
    print(f"   PyTorch eager {seconds * 1e3:8.0f} ms   PSNR to the photograph {psnr(reference, wanted):.2f} dB")
    loaded = kitsune_mlir.load(out / "photo.kitsune")
    pictures, right = {}, True
    for target in runnable(loaded):
        loaded.target = target
        poison = loaded(points[:256])  # the runner is made at the first call
        picture, seconds = timed(lambda: loaded(points))
        error = relative_error(picture, reference)
        right = right and error < TOLERANCE and bool(torch.isfinite(poison).all())
        print(
            f"   kitsune on {target:<8}{seconds * 1e3:8.0f} ms   relative error {error:.1e}   "
            f"PSNR to PyTorch {psnr(picture, reference):.1f} dB, to the photograph {psnr(picture, wanted):.2f} dB"
        )
        pictures[target] = picture
    save_pictures(out, height, width, wanted, reference, pictures)

    heading(f"5. what is in {out}")
    for path in sorted(path for path in out.iterdir() if path.is_file()):
        print(f"   {path.name:<18} {path.stat().st_size / 1024:9.1f} KiB  {ABOUT.get(path.name, '')}")
    print("\nagrees with PyTorch" if right else f"\nDISAGREES with PyTorch (tolerance {TOLERANCE})")
    return 0 if right else 1


ABOUT = {
    "photo.pt2": "the exported model",
    "photo.kitsune": "the artifact: kitsune_mlir.load needs numpy only",
    "photo.ptx": f"the kernels for {GPU}",
    "plan.svg": f"stages, queues and CTAs on {GPU}",
    "plan.json": "the plans as data",
    "render-cpu.png": "rendered by the compiled pipeline on the CPU",
    f"render-{GPU}.png": "rendered by the compiled pipeline on the GPU",
    "comparison.png": "photograph, PyTorch, kitsune, difference times 1,000,000",
}


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def _teller(seconds: float) -> Callable[[int, float], None]:
    start, shown = time.perf_counter(), [0.0]

    def tell(steps: int, loss: float) -> None:
        elapsed = time.perf_counter() - start
        if sys.stderr.isatty() and elapsed - shown[0] > 0.5:
            shown[0] = elapsed
            sys.stderr.write(
                f"\r\033[K   {elapsed:4.0f} of {seconds:g} s, step {steps}, PSNR {-10 * np.log10(loss):.1f} dB\r"
            )
            sys.stderr.flush()

    return tell


def export(network: CoordinateNetwork, path: Path) -> Path:
    """Saves the network as a .pt2 that takes any number of rows."""
    rows = torch.export.Dim("rows", min=1, max=2**24)
    exported = torch.export.export(network, (torch.zeros(4096, 2),), dynamic_shapes=({0: rows},))
    torch.export.save(exported, path)
    return path


def leave(compiled: kitsune_mlir.Compiled, out: Path) -> None:
    """Writes the artifact, the PTX, the plans and the drawing."""
    compiled.save(out / "photo.kitsune")
    (out / "photo.ptx").write_text(compiled.ptx)
    (out / "plan.json").write_text(json.dumps(compiled.plans, indent=1))
    (out / "plan.svg").write_text(drawing.svg(compiled.plans[GPU]))


def runnable(loaded: kitsune_mlir.Loaded) -> list[str]:
    """The targets of the artifact that this machine has."""
    found = []
    for target in loaded.targets:
        try:
            loaded.target = target
            found.append(target)
        except kitsune_mlir.KitsuneError as error:
            print(f"   not on {target}: {error}")
    return found


def timed(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found.double() - wanted.double()).norm() / wanted.double().norm()).item()


def psnr(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Peak signal-to-noise ratio of colours in [0, 1], in dB."""
    return -10 * float(np.log10(max(((found.double() - wanted.double()) ** 2).mean().item(), 1e-30)))


def save_pictures(
    out: Path,
    height: int,
    width: int,
    wanted: torch.Tensor,
    reference: torch.Tensor,
    pictures: dict[str, torch.Tensor],
) -> None:
    """Each rendering, and all side by side with the difference to PyTorch times a million."""
    panels = [wanted, reference]
    for target, picture in pictures.items():
        to_image(picture, height, width).save(out / f"render-{target}.png")
        panels += [picture, (picture - reference).abs() * 1e6]
    side_by_side = torch.cat([panel.float().clamp(0, 1).reshape(height, width, 3) for panel in panels], 1)
    to_image(side_by_side, height, width * len(panels)).save(out / "comparison.png")


def to_image(colours: torch.Tensor, height: int, width: int) -> Image.Image:
    pixels = (colours.float().clamp(0, 1) * 255).round().to(torch.uint8)
    return Image.fromarray(pixels.reshape(height, width, 3).numpy())


def indent(text: str) -> str:
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
