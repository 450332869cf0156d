"""What runs of consecutive stages of a designed pipeline compute, told without building them: of a recurrence that is
unrolled, most are the same as those of the step before."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.captures import captures
from kitsune_mlir.form import Form, form_of

_NAMES = frozenset({"sym_name", "index"})  # of stages, and of outputs, which a run numbers anew


class Numbers(dict[Form, int]):
    """A number for each form of a stage, the same for those that are equal; of one context."""

    def __missing__(self, form: Form) -> int:
        self[form] = number = len(self)
        return number


class RunForms:
    """Runs of the stages of `pipeline` with the same form become pipelines of the same form (form.py), but for how many
    rows they have; so do those of other pipelines whose stages have the same `numbers`."""

    def __init__(self, pipeline: kitsune.PipelineOp, stages: Sequence[kitsune.StageOp], numbers: Numbers):
        self._equal, self._alike = (
            [numbers[form_of([stage], _NAMES, with_numbers)] for stage in stages] for with_numbers in (True, False)
        )
        self._used = [tuple(map(hash, captures(stage))) for stage in stages]
        taken = {result.position for result in pipeline.result_ops}
        self._stored = [tuple(store.position in taken for store in stage.stores) for stage in stages]
        places = {stage.label: place for place, stage in enumerate(stages)}
        self._last = {
            hash(queue.results[0]): max((places[stage.label] for stage in queue.consumers), default=-1)
            for queue in pipeline.queues
        }
        self._put = [tuple(hash(op.operands[0]) for op in (*stage.puts, *stage.accumulates)) for stage in stages]

    def of(self, first: int, last: int) -> Form:
        """The form of the stages from the first to the last, both included: what each computes, up to the numbers in
        it, by which the steps of an unrolled recurrence tell their times; which of them are equal, as a loop's turns
        are; which use the same values from around them, or what another has made; and whose tiles leave."""
        numbers: dict[int, int] = {}
        equal: dict[int, int] = {}
        run = range(first, last + 1)
        return tuple(
            (
                self._alike[stage],
                equal.setdefault(self._equal[stage], len(equal)),
                tuple(numbers.setdefault(value, len(numbers)) for value in self._used[stage]),
                tuple(self._last[queue] > last for queue in self._put[stage]),
                self._stored[stage],
            )
            for stage in run
        )
