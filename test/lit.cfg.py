"""lit configuration: `lit test` runs the FileCheck suite with the Python that runs lit."""

import os
import shutil
import sys

import lit.formats

config.name = "kitsune"  # noqa: F821  (lit defines `config`)
config = config  # noqa: F821, PLW0127
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".py"]
config.excludes = ["lit.cfg.py", "python", "tool_server", "Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(os.path.dirname(__file__), "..", "build", "lit")

# The tools stand beside the interpreter, and run in forks of one process; a system FileCheck is faster than PyPI's.
binaries = os.path.dirname(sys.executable)
config.environment["PATH"] = os.pathsep.join([binaries, os.environ["PATH"]])
config.environment["PYTHONDONTWRITEBYTECODE"] = ""  # any text means: do not write
config.environment["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"  # some virtual machines list AMX and trap its use
sys.path.append(os.path.join(os.path.dirname(__file__), "tool_server"))
from lit_tools import client  # noqa: E402

config.substitutions += [
    ("%PYTHON", sys.executable),
    (r"\bkitsune-opt\b", f"{client()} kitsune-opt"),
    (r"\bfilecheck\b", shutil.which("FileCheck") or f"{client()} filecheck"),
]
