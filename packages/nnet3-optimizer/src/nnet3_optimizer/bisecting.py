"""Finds the option and the pass that make a computation wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from nnet3_computation.computation import NnetComputation

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.options import OptimizeOptions
from nnet3_optimizer.pipeline import PIPELINE, Pass

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

_OFF: dict[str, Any] = {
    field.name: None if field.default is None else type(field.default)(0)
    for field in attrs.fields(OptimizeOptions)
    if field.name not in ("optimize", "verify")
}
"""For each option that turns passes on, the value that turns them off."""


@attrs.frozen(kw_only=True)
class FaultyOption:
    """The cause of a wrong computation.

    Attributes:
        options: A minimal set of options that makes the result wrong: turning off any of them
            corrects it. There are several if one has an effect only together with another, and none
            if the result is wrong with all options off.
        pass_name: The pass after which the computation is wrong, with only these options on; None
            if it was wrong before any pass.
        before: The passes that ran before that one.
        error: The exception of the pass or of the judgement, or None.
    """

    options: tuple[str, ...]
    pass_name: str | None
    before: tuple[str, ...]
    error: Exception | None

    def __str__(self) -> str:
        """Names the options, the pass and what was raised."""
        which = " with ".join(f"'{option}'" for option in self.options) or "no option"
        if self.pass_name is None:
            text = "wrong before any pass"
        else:
            done = ", ".join(self.before) or "no other"
            text = f"{which} is at fault: wrong after pass '{self.pass_name}' (after {done})"
        return text + (f": {self.error}" if self.error is not None else "")


def find_faulty_option(
    nnet: Nnet,
    computation: NnetComputation,
    is_correct: Callable[[NnetComputation], bool],
    options: OptimizeOptions | None = None,
) -> FaultyOption | None:
    """Finds the option and the pass that make the result of the optimizer wrong.

    It turns off one option after the other, and leaves an option off if the result is still wrong.
    The options that stay on are at fault. With only these on, it judges the computation after each
    pass.

    Args:
        nnet: The network that the computation was compiled for.
        computation: The computation as compiled.
        is_correct: Judges a computation after all passes, or after the first few. It may compare
            its results with the results of `computation`, or check and prove it. An exception
            counts as a wrong computation.
        options: The options with which the result is wrong.

    Returns:
        The option and pass at fault, or None if the result is correct.

    Raises:
        ComputationError: The computation is of another network.
    """
    return fault_among(PIPELINE, nnet, computation, is_correct, options)


def fault_among(
    passes: Sequence[Pass],
    nnet: Nnet,
    computation: NnetComputation,
    is_correct: Callable[[NnetComputation], bool],
    options: OptimizeOptions | None = None,
) -> FaultyOption | None:
    """Finds the option and the pass at fault among some passes; see `find_faulty_option`."""
    computation.check_network(nnet)
    trial = _Trial(nnet, computation, is_correct)
    options = options or OptimizeOptions()
    if trial.judge(options, passes).correct:
        return None
    for name in _options_on(options):
        fewer = _without(options, name)
        if not trial.judge(fewer, passes).correct:
            options = fewer
    ran = [each for each in passes if each.wanted(options)]
    for count in range(len(ran) + 1):
        verdict = trial.judge(options, ran[:count])
        if not verdict.correct:
            break
    return FaultyOption(
        options=tuple(_options_on(options)),
        pass_name=ran[count - 1].name if count else None,
        before=tuple(each.name for each in ran[: max(count - 1, 0)]),
        error=verdict.error,
    )


@attrs.frozen
class _Verdict:
    correct: bool
    error: Exception | None = None


@attrs.frozen
class _Trial:
    """A computation to run passes on, and how to judge the result."""

    nnet: Nnet
    computation: NnetComputation
    is_correct: Callable[[NnetComputation], bool]

    def judge(self, options: OptimizeOptions, passes: Sequence[Pass]) -> _Verdict:
        """Judges the computation after these passes, as far as the options want them."""
        try:
            draft = Draft.of(self.nnet, self.computation)
            for each in passes:
                if each.wanted(options):
                    draft = each.run(draft, options)
            return _Verdict(self.is_correct(draft.computation()))
        except Exception as error:  # a faulty pass may fail in any way; all of them are reported
            return _Verdict(False, error)


def _options_on(options: OptimizeOptions) -> list[str]:
    """Returns the names of the options that are on."""
    return [name for name, off in _OFF.items() if getattr(options, name) != off]


def _without(options: OptimizeOptions, name: str) -> OptimizeOptions:
    return attrs.evolve(options, **{name: _OFF[name]})
