"""A wrong result is traced to the option and the pass that cause it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import attrs
import pytest
from brief_computations import NNET, computation
from nnet3_computation import NnetComputation
from nnet3_computation.commands import ALPHA_COLUMN, OPCODE_COLUMN, MatrixAdd, MatrixCopy
from nnet3_optimizer import (
    EquivalenceError,
    OptimizeOptions,
    find_faulty_option,
    verify_equivalent,
)
from nnet3_optimizer.bisecting import fault_among
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.pipeline import PIPELINE, Pass

COMPILED = computation("""
m1 = accept input
m2 = zeros
m3 = zeros
m4 = zeros
m2 = affine.propagate(m1)
m3 = m2
m3 += 0.5 * m1
m4 = affine2.propagate(m3)
provide output = m4
segment end
free m1
free m2
free m3
""")


def is_equivalent(optimized: NnetComputation) -> bool:
    """Whether the results are those of the compiled computation."""
    try:
        verify_equivalent(NNET, COMPILED, optimized)
    except EquivalenceError:
        return False
    return True


def scales_sums(draft: Draft) -> Draft:
    """A faulty pass: doubles all scales of sums."""
    table = draft.table.copy()
    is_sum = table[:, OPCODE_COLUMN] == MatrixAdd.OPCODE
    alpha = table[is_sum, ALPHA_COLUMN].copy().view("float32")
    table[is_sum, ALPHA_COLUMN] = (2 * alpha).view("int32")
    return attrs.evolve(draft, table=table)


def copies(draft: Draft) -> Draft:
    """A faulty pass: copies where it should add."""
    table = draft.table.copy()
    table[table[:, OPCODE_COLUMN] == MatrixAdd.OPCODE, OPCODE_COLUMN] = MatrixCopy.OPCODE
    return attrs.evolve(draft, table=table)


def crashes(draft: Draft) -> Draft:
    """A faulty pass that raises an error."""
    raise IndexError(f"nothing at {len(draft.table)}")


def planted(name: str, fault: Callable[[Draft], Draft]) -> tuple[Pass, ...]:
    """The passes, with a fault in one of them."""
    assert name in [each.name for each in PIPELINE]

    def faulty(function: Callable[..., Draft]) -> Callable[..., Draft]:
        return lambda draft, **arguments: fault(function(draft, **arguments))

    def with_fault(each: Pass) -> Pass:
        if each.name != name:
            return each
        return attrs.evolve(each, function=wraps(each.function)(faulty(each.function)))

    return tuple(map(with_fault, PIPELINE))


def test_nothing_is_found_in_sound_passes() -> None:
    """Without a fault, nothing is reported."""
    assert find_faulty_option(NNET, COMPILED, is_equivalent) is None


@pytest.mark.parametrize("fault", [scales_sums, copies])
@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("snip_row_ops", "snip_row_ops"),
        ("remove_dead_commands", "remove_dead_commands"),
        ("convert_addition", "convert_addition"),
        ("move_sizing_commands", "move_sizing_commands"),
        ("memory_compression", "memory_compression_level"),
    ],
)
def test_names_option_and_pass(name: str, option: str, fault: Callable[[Draft], Draft]) -> None:
    """A planted fault is traced to the pass, and to the option that turns the pass on."""
    passes = planted(name, fault)
    if name == "convert_addition":  # otherwise the only sum is gone before the fault
        passes = tuple(each for each in passes if each.name != "order_additions")

    found = fault_among(passes, NNET, COMPILED, is_equivalent)

    assert found is not None
    assert (found.options, found.pass_name) == ((option,), name)
    assert name not in found.before
    assert found.error is None
    assert f"'{option}' is at fault: wrong after pass '{name}'" in str(found)


def test_options_that_are_wrong_only_together() -> None:
    """If turning off either of two options helps, both are named."""
    passes = planted("merge_variables", scales_sums)
    options = OptimizeOptions(propagate_in_place=False, backprop_in_place=False)
    faulty = next(each for each in passes if each.name == "merge_variables")
    wanted = attrs.evolve(faulty, condition=lambda o: o.remove_assignments and o.allow_left_merge)

    found = fault_among([wanted], NNET, COMPILED, is_equivalent, options)

    assert found is not None
    assert found.options == ("remove_assignments", "allow_left_merge")
    assert str(found).startswith("'remove_assignments' with 'allow_left_merge' is at fault")


def test_a_pass_that_raises() -> None:
    """An error that a pass raises is reported."""
    passes = planted("extend_matrices", crashes)

    found = fault_among(passes, NNET, COMPILED, is_equivalent)

    assert found is not None
    assert (found.options, found.pass_name) == (("extend_matrices",), "extend_matrices")
    assert isinstance(found.error, IndexError)
    assert str(found).endswith(": nothing at 13")


def test_a_pass_that_no_option_turns_off() -> None:
    """A fault in a pass that always runs belongs to no option."""
    found = fault_among(planted("renumber", scales_sums), NNET, COMPILED, is_equivalent)

    assert found is not None
    assert (found.options, found.pass_name) == ((), "renumber")
    assert str(found).startswith("no option is at fault: wrong after pass 'renumber'")


def test_wrong_from_the_beginning() -> None:
    """If the judgement refuses the compiled computation, no pass is at fault."""
    found = find_faulty_option(NNET, COMPILED, lambda computation: False)

    assert found is not None
    assert (found.options, found.pass_name, found.before) == ((), None, ())
    assert str(found) == "wrong before any pass"
