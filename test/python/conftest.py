"""Shared by the Python tests: one small model, compiled once a session, and descriptions of small GPUs."""

from __future__ import annotations

import functools
import gc
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

# ptxas is asked about the kernels that are others than those of the last tests; `make clean` has it asked about all.
os.environ.setdefault("KITSUNE_CACHE", str(pathlib.Path(__file__).parents[2] / "build" / "cache"))
# Before numpy is there: its threads spin, and tests run side by side.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Before torch is there: some virtual machines list AMX and trap its instructions, which torch's CPU products would use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Before torch._dynamo is there: it would look for garbage each time it has compiled.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")

gc.disable()  # torch's and MLIR's import makes millions of objects, and none to throw away

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import cpu, gpu, ptxas
from kitsune_mlir.frontend import recurrent_layers
from kitsune_mlir.passes import schedule_attention
from kitsune_mlir.planning import target

torch.set_num_threads(1)
OPTIMISED = ("test_cpu_", "test_drawn_", "test_frontend_16_bit_sums", "test_fuzz", "test_models", "test_torch_values")


def pytest_collection_finish() -> None:
    """The millions of objects of torch and MLIR are not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    gc.enable()


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of recurrent layers are taken one by one, as those of cells that a model calls are."""
    monkeypatch.setattr(recurrent_layers, "_FEW", 1 << 20)


@pytest.fixture(scope="session")
def gpu_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """gpu_of(sms, like, **fields) gives the path of the description of a GPU, named "small", of so few SMs that each
    has several tiles of a small problem."""
    folder = tmp_path_factory.mktemp("targets")

    @functools.cache
    def path_of(sms: int, like: str = "sm_90a", **fields: Any) -> str:
        number = path_of.cache_info().currsize
        return target.load(like).override(name="small", sms=sms, **fields).save(folder / f"{number}.json")

    return path_of


@pytest.fixture(scope="session")
def small_gpu(gpu_of: Callable[..., str]) -> str:
    """The path of the description of a GPU of eight SMs."""
    return gpu_of(8)


@pytest.fixture
def unassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No PTX is generated: for kernels that only the simulator runs. What ptxas says of their forms is asked for in
    test_hopper_ptx.py, test_pipeline_ptx.py and test_schedule_ptx.py."""
    monkeypatch.setattr(gpu, "to_ptx", lambda module, chip: "")
    monkeypatch.setattr(ptxas, "assemble", lambda text, chip: None)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is one kernel wherever it has tiles, whatever it is predicted to take."""
    monkeypatch.setattr(schedule_attention._Pair, "is_faster", lambda pair: pair.tiles is not None)


@pytest.fixture(scope="module", autouse=True)
def unoptimized(request: pytest.FixtureRequest) -> Iterator[None]:
    """LLVM leaves the CPU's code as it comes, which takes a quarter of the time: most tests ask what a model means.
    Of the files in OPTIMISED the code is as users run it."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.path.name.startswith(OPTIMISED):
            patch.setattr(cpu, "build", functools.partial(cpu.build, opt_level=0))
        yield


class Perceptron(nn.Module):
    """Two layers over any number of rows; takes a keyword and gives a dict, to exercise signatures."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.relu(self.up(x))
        return {"y": self.down(hidden) * scale, "hidden": hidden}


@pytest.fixture(scope="session")
def perceptron() -> Perceptron:
    torch.manual_seed(0)
    return Perceptron().eval()


@pytest.fixture(scope="session")
def exported(perceptron: Perceptron) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=1, max=4096)
    example = {"x": torch.randn(64, 16), "scale": torch.ones(4)}
    return torch.export.export(perceptron, (), example, dynamic_shapes={"x": {0: rows}, "scale": None})


@pytest.fixture(scope="session")
def compiled(exported: torch.export.ExportedProgram) -> kitsune_mlir.Compiled:
    return kitsune_mlir.compile(exported)
