"""The main job from end to end: `make demo`.

Trains a small coordinate network on a photograph, exports it to .pt2 with a dynamic number of rows,
compiles it for the CPU and for a Hopper GPU, renders the photograph with the compiled pipeline, and
compares with PyTorch. Pictures, plan, PTX and artifact are left in the output folder.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # torch's idle threads sleep: much faster on a busy machine
# Some virtual machines list AMX and trap its instructions, which torch's products of bf16 would use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import numpy as np
import torch
from demo_network import CoordinateNetwork, pixel_grid, train
from matplotlib import cbook
from PIL import Image, ImageDraw, ImageFont

import kitsune_mlir
from kitsune_mlir import drawing

warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")  # from inside torch.export

GPU = "sm_90a"
PRECISIONS = {"f32": (torch.float32, 1e-4), "bf16": (torch.bfloat16, 2e-2)}  # and the relative error allowed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for what is made")
    parser.add_argument("--seconds", type=float, default=40, help="training time")
    parser.add_argument("--width", type=int, default=512, help="of the picture, in pixels")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)

    photo = Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    width, height = options.width, round(options.width * photo.height / photo.width)
    photo = photo.resize((width, height), Image.Resampling.LANCZOS)
    wanted = torch.from_numpy(np.asarray(photo).reshape(-1, 3).copy()).float() / 255
    points = pixel_grid(height, width)

    heading(f"1. train a coordinate network on a {width} x {height} photograph for {options.seconds:g} s")
    network, steps = train(points, wanted, options.seconds, _teller(options.seconds))
    print(f"   {steps} steps of 1024 pixels, {sum(p.numel() for p in network.parameters()):,} parameters")
    networks = {name: copy.deepcopy(network).to(kind) for name, (kind, _) in PRECISIONS.items()}

    heading(f"2. export to .pt2, compile for the CPU and for {GPU}")
    for name in networks:
        compiled = kitsune_mlir.compile(export(networks[name], out / f"photo-{name}.pt2"), target=["cpu", GPU])
        leave(compiled, out, name)
        slowest = sorted(compiled.seconds.items(), key=lambda item: -item[1])[:3]
        steps_text = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in slowest)
        print(f"   {name:<5} {sum(compiled.seconds.values()):.1f} s ({steps_text})")

    heading("3. the plan (bf16)")
    print(indent(compiled.report()))

    heading("4. render with the saved artifacts, compare with PyTorch")
    panels, right = {"photograph": wanted}, True
    for name, (_, tolerance) in PRECISIONS.items():
        right = render(name, networks[name], out, points, wanted, tolerance, panels) and right
    save_pictures(out, height, width, panels)

    heading(f"5. what is in {out}")
    for path in sorted(path for path in out.iterdir() if path.is_file()):
        print(f"   {path.name:<22} {path.stat().st_size / 1024:9.1f} KiB  {about(path.name)}")
    print("\nagrees with PyTorch" if right else "\nDISAGREES with PyTorch")
    return 0 if right else 1


def render(
    name: str,
    network: CoordinateNetwork,
    out: Path,
    points: torch.Tensor,
    wanted: torch.Tensor,
    tolerance: float,
    panels: dict[str, torch.Tensor],
) -> bool:
    """Renders with torch and with the artifact on every target there is; adds the pictures to `panels`.
    Returns whether all agree."""
    with torch.no_grad():
        reference, seconds = timed(lambda: network(points))
    panels[f"PyTorch, {name}"] = reference
    to_photograph = f"PSNR to the photograph {psnr(reference, wanted):.2f} dB"
    print(f"   {name:<5} PyTorch          {seconds * 1e3:7.0f} ms   {to_photograph}")
    loaded, right = kitsune_mlir.load(out / f"photo-{name}.kitsune"), True
    for target in runnable(loaded):
        loaded.target = target
        loaded(points)  # the first call allocates
        picture, seconds = timed(lambda: loaded(points))
        error = relative_error(picture, reference)
        right = right and error < tolerance
        panels[f"kitsune on {target}, {name}"] = picture
        print(
            f"   {name:<5} kitsune, {target:<7} {seconds * 1e3:7.0f} ms   PSNR to the photograph "
            f"{psnr(picture, wanted):.2f} dB, to PyTorch {psnr(picture, reference):.1f} dB; relative error {error:.1e}"
        )
        if name == "f32":
            panels["difference x 1,000,000"] = (picture - reference).abs() * 1e6
    return right


def about(name: str) -> str:
    """What a file of the output folder is."""
    kinds = {
        ".pt2": "an exported model",
        ".kitsune": "an artifact: kitsune_mlir.load needs numpy only",
        ".ptx": f"the kernels for {GPU}",
        ".svg": f"stages, queues and CTAs on {GPU}",
        ".json": "the plans as data",
        ".png": "all renderings side by side" if name == "comparison.png" else "rendered by the compiled pipeline",
    }
    return kinds.get(Path(name).suffix, "")


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


def leave(compiled: kitsune_mlir.Compiled, out: Path, name: str) -> None:
    """Writes the artifact, the PTX, the plans and the drawing."""
    compiled.save(out / f"photo-{name}.kitsune")
    (out / f"photo-{name}.ptx").write_text(compiled.ptx)
    (out / f"plan-{name}.json").write_text(json.dumps(compiled.plans, indent=1))
    (out / f"plan-{name}.svg").write_text(drawing.svg(compiled.plans[GPU]))


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


def save_pictures(out: Path, height: int, width: int, panels: dict[str, torch.Tensor]) -> None:
    """Every rendering of the compiled pipelines, and all panels side by side with their names above."""
    band = 28
    sheet = Image.new("RGB", (width * len(panels), height + band), "white")
    for i, (label, colours) in enumerate(panels.items()):
        picture = to_image(colours, height, width)
        sheet.paste(picture, (i * width, band))
        ImageDraw.Draw(sheet).text((i * width + 8, 6), label, "black", ImageFont.load_default(16))
        if label.startswith("kitsune on "):
            target, name = label.removeprefix("kitsune on ").split(", ")
            picture.save(out / f"render-{target}-{name}.png")
    sheet.save(out / "comparison.png")


def to_image(colours: torch.Tensor, height: int, width: int) -> Image.Image:
    pixels = (colours.float().clamp(0, 1) * 255).round().to(torch.uint8)
    return Image.fromarray(pixels.reshape(height, width, 3).numpy())


def indent(text: str) -> str:
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
