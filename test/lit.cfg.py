"""lit configuration: `lit test` runs the FileCheck suite with the Python that runs lit."""

import os
import shutil
import sys

import lit.formats

config.name = "kitsune"  # noqa: F821  (lit defines `config`)
config = config  # noqa: F821, PLW0127
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".py"]
config.excludes = ["lit.cfg.py", "python", "Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(os.path.dirname(__file__), "..", "build", "lit")

# The tools stand beside the interpreter; a system FileCheck is faster than the one from PyPI.
binaries = os.path.dirname(sys.executable)
config.environment["PATH"] = os.pathsep.join([binaries, os.environ["PATH"]])
config.environment["PYTHONDONTWRITEBYTECODE"] = ""  # any text means: do not write
config.substitutions += [
    ("%PYTHON", sys.executable),
    (r"\bfilecheck\b", shutil.which("FileCheck") or os.path.join(binaries, "filecheck")),
]
