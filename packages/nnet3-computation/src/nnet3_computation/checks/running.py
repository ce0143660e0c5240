"""The checks before a run, and how to run checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nnet3_computation.checks.allocation import check_allocation
from nnet3_computation.checks.components import check_components
from nnet3_computation.checks.compression_types import check_compression_types
from nnet3_computation.checks.inputs_and_outputs import check_world
from nnet3_computation.checks.memory_plan import check_memory_plan
from nnet3_computation.checks.memos import check_memos
from nnet3_computation.checks.network import check_network
from nnet3_computation.checks.rounds import check_rounds
from nnet3_computation.checks.rows import check_rows
from nnet3_computation.checks.subject import FaultError, Subject
from nnet3_computation.computation import NnetComputation
from nnet3_computation.errors import CheckError
from nnet3_computation.text.listing import list_commands

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

Check = tuple[str, Callable[[Subject], None]]
"""The name of a check, and a function that fails if a computation does not pass it."""

FITTING: tuple[Check, ...] = (
    ("network", check_network),
    ("components", check_components),
    ("world", check_world),
    ("rows", check_rows),
    ("loop", check_rounds),
)
"""The checks that every command can run: its operands have the right sizes, and a loop ends."""

RUNNING: tuple[Check, ...] = (
    *FITTING,
    ("allocation", check_allocation),
    ("memos", check_memos),
    ("compression", check_compression_types),
    ("memory plan", check_memory_plan),
)
"""The checks that hold for everything that can run, sensible or not."""


def check_fitting(nnet: Nnet, computation: NnetComputation) -> None:
    """Checks that components and nodes are those of the network, sizes and lists fit, loops end.

    Args:
        nnet: The network.
        computation: The computation, optimized or not.

    Raises:
        CheckError: Names the check, the command by number and text, the operand, the value and
            what was expected, and shows the neighbouring commands.
    """
    run_checks(FITTING, Subject.of(nnet, computation))


def check_runnable(nnet: Nnet, computation: NnetComputation) -> None:
    """Checks that a computation can be run with a network, whether or not the result makes sense.

    Components and nodes are those of the network, sizes and lists fit, a loop goes from the end of
    a segment to the beginning of one, and matrices and memos exist when they are used. The check
    takes a few milliseconds at most, so that it can run whenever a computation is bound to memory.
    Computations do not hold names and parameters, so a network with other names or parameters
    passes. The fingerprint, if the computation has one, shows all other differences.

    Args:
        nnet: The network that the computation is to run with.
        computation: The computation, optimized or not.

    Raises:
        CheckError: As by `check_fitting`; if it names a component or node, the computation is
            most likely of another network.
    """
    run_checks(RUNNING, Subject.of(nnet, computation))


def run_checks(checks: Iterable[Check], subject: Subject) -> None:
    """Runs checks in their order.

    Raises:
        CheckError: One of them failed.
    """
    for name, check in checks:
        try:
            check(subject)
        except FaultError as fault:
            at = fault.command
            listing = "" if at is None else list_commands(subject.computation, subject.nnet, at)
            raise CheckError(fault.message, check=name, command=at, listing=listing) from None
