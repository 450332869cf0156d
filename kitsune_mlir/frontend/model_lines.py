"""Where in a model's source an operator of torch's graph, or an error of torch's, is from."""

from __future__ import annotations

import itertools
import os
import re

import torch

_LIBRARIES = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.__file__) + os.sep, "<")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def is_library(file: str) -> bool:
    """Whether a source file is torch's or Python's rather than the model's."""
    return file.startswith(_LIBRARIES) and "site-packages" not in file.removeprefix(_LIBRARIES[0])


def refused_by_rule(error: Exception) -> str:
    """What a rule that takes operators apart refuses, or fails by, and the model's line: torch adds the node."""
    said, _, behind = str(error).partition("\n\nWhile executing ")
    frames = [frame for frame in _FRAME.findall(behind) if not is_library(frame[0])]
    return f"{said} (at {frames[-1][0]}:{frames[-1][1]})" if frames else said


def line_of(node: torch.fx.Node) -> str:
    """The model's innermost frame as " at file:line", or nothing."""
    frames = _FRAME.findall(node.stack_trace or "")
    return f" at {frames[-1][0]}:{frames[-1][1]}" if frames else ""


def user_frames(trace: str) -> str:
    """The stack trace without its innermost frames in torch, so that a location names the model's line."""
    lines = trace.splitlines()
    starts = [i for i, line in enumerate(lines) if _FRAME.search(line)] + [len(lines)]
    frames = ["\n".join(lines[a:b]) for a, b in itertools.pairwise(starts)]
    files = [_FRAME.search(frame).group(1) for frame in frames]
    last = max((i for i, file in enumerate(files) if not is_library(file)), default=len(frames) - 1)
    return "\n".join(frames[: last + 1])
