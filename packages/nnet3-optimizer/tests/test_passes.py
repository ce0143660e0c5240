"""Passes do what their docstrings show, and leave other commands unchanged."""

import pytest
from brief_computations import NNET, before_and_after, brief, computation, draft
from nnet3_optimizer import EquivalenceError, OptimizeOptions, check_computation, verify_equivalent
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.extend_matrices import extend_matrices
from nnet3_optimizer.passes.memory_compression import memory_compression
from nnet3_optimizer.passes.renumber import renumber
from nnet3_optimizer.passes.trim_matrices import trim_matrices
from nnet3_optimizer.pipeline import PIPELINE

OPTIONS = OptimizeOptions(memory_compression_level=1)  # without loss
PASSES = {
    each.name: each
    for each in PIPELINE
    if each.name not in ("limit_derivative_times", "split_statistics")  # have tests of their own
}


def run(name: str, given: Draft) -> Draft:
    """What a pass makes, without what is then unused if it leaves that to others."""
    after = PASSES[name].run(given, OPTIONS)
    return renumber(after) if name in ("merge_variables", "recompute_activations") else after


@pytest.mark.parametrize("name", PASSES)
def test_docstring(name: str) -> None:
    """The docstring shows what the pass makes from its example, and both are equivalent."""
    before, after = before_and_after(PASSES[name].function)
    check_computation(NNET, computation(before), check_unused=False)

    result = run(name, draft(before))

    assert brief(result) == after
    check_computation(NNET, renumber(result).computation(), check_unused=False)
    verify_equivalent(NNET, computation(before), result.computation())


@pytest.mark.parametrize("name", PASSES)
def test_nothing_left_to_do(name: str) -> None:
    """A pass does not change its own result."""
    once = run(name, draft(before_and_after(PASSES[name].function)[0]))

    assert brief(run(name, once)) == brief(once)


def between(commands: str, second: str = "") -> str:
    """A computation of one input, m1, and one output, m2, with these commands between.

    A second output may be provided, too.
    """
    return f"""
        m1 = accept input
        {commands}
        provide output = m2
        {f"provide output2 = {second}" if second else ""}
        segment end
        """


WHAT_STAYS = {
    "what is provided before it changes": (
        "consolidate_io",
        """
        m1 = accept input
        m2 = undefined
        m2 = affine.propagate(m1)
        provide output = m2
        m2 += m1
        segment end
        """,
    ),
    "zeros that are added to first": (
        "initialize_undefined",
        between("m2 = zeros\nm2(0:1, :) = m1(0:1, :)\nm2 += m1"),
    ),
    "zeros that the user sees": (
        "initialize_undefined",
        between("m2 = zeros\nm2(0:1, :) = m1(0:1, :)"),
    ),
    "an addition to undefined memory that a constant was written to": (
        "convert_addition",
        between("m2 = undefined\nm2 = constant 1.0\nm2 += m1"),
    ),
    **{
        f"a list {kind}": (
            "split_row_ops",
            between(
                f"m1 = 9 x 4\nj0 = {pairs}\nm3 = accept ivector\nm2 = undefined\nm2 = rows(j0)"
            ),
        )
        for kind, pairs in (
            ("with a gap", "m1[0], -, m3[0, 1]"),
            ("of more than two stretches", "m1[0], m3[0], m1[1], m3[1]"),
            ("for few of many rows", "m1[0, 8], m3[0, 1]"),
        )
    },
    **{
        f"two outputs of which {why}": (
            "merge_variables",
            between(f"m2 = zeros\nm3 = zeros\nm2 = affine.propagate(m1)\n{commands}", "m3"),
        )
        for why, commands in (
            ("one is written before", "m3 = constant 1.0\nm3 = m2"),
            ("the source changes", "m3 = m2\nm2 += m1"),
            ("the copy changes", "m3 = m2\nm3 += m1"),
            ("the source is still used", "m3 = relu.propagate(m2)"),
        )
    },
    "the output of a rectifier that another backward pass needs": (
        "memory_compression",
        """
        m1 = accept input
        m1 = relu.propagate(m1)
        m2 = undefined
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        m3 = accept output
        m4 = zeros
        m4 = affine.backprop(m3, input m1)
        m4 = relu.backprop(m4, output m1)
        provide input = m4
        """,
    ),
    "a copy whose target changes while the source is still read": (
        "extend_matrices",
        """
        m1 = 10 x 4
        m2 = 10 x 4
        m3 = 9 x 4
        m4 = 9 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m2 = affine.propagate(m1)
        m3 = m2(0:8, :)
        m3 += m2(1:9, :)
        m4 = affine.propagate(m3)
        provide output = m4
        segment end
        """,
    ),
    "the output of a convolution, whose rows have no gaps": (
        "merge_variables",
        between(
            "m4 = 4 x 8\nm3 = zeros\nm4 = zeros\nm2 = zeros\nm3 = conv.propagate(m1)\n"
            "m4(:, 0:3) = m3\nm2 = wide.propagate(m4)"
        ),
    ),
}


@pytest.mark.parametrize(("name", "text"), WHAT_STAYS.values(), ids=WHAT_STAYS)
def test_what_stays(name: str, text: str) -> None:
    """A pass leaves what would have other results, or gain nothing, as it is."""
    given = draft(text)

    assert brief(PASSES[name].run(given, OPTIONS)) == brief(given)


DEAD = "m3 = zeros\nm4 = zeros\nm3 = affine.propagate(m1)\nm4 = affine2.propagate(m3)\nm4 += m3\n"
SPLITTING = """
    m3 = 2 x 4
    j0 = m2[3, 1], m3[0, 1]
    j1 = m2[2, 1], m3[0, 1]
    m1 = accept input
    m2 = zeros
    m3 = zeros
    {}
    provide output = m2
    provide output2 = m3
    segment end
    """
BACKWARD = """
    m1 = accept input
    m2 = zeros
    m2 = {0}.propagate(m1{1})
    provide output = m2
    segment end
    m3 = accept output
    m4 = zeros
    m4 = {0}.backprop(m3, {2})
    """

EFFECTS: dict[str, tuple[str, str, list[str], list[str]]] = {
    "an addition becomes a copy only where nothing was written before": (
        "convert_addition",
        between(
            "m2 = zeros\nm2(0:1, :) += m1(0:1, :)\nm2(2:3, :) += m1(2:3, :)\n"
            "m2(0:1, :) += m1(2:3, :)"
        ),
        ["m2(0:1, :) = m1(0:1, :)", "m2(2:3, :) = m1(2:3, :)", "m2(0:1, :) += m1(2:3, :)"],
        [],
    ),
    "adding to rows of several matrices becomes one command for each, with inverse lists": (
        "split_row_ops",
        SPLITTING.format("rows(j0) += m1"),
        ["m2(1:3, :) += m1(0:1, :)[i0]", "m3 += m1(2:3, :)"],
        [],
    ),
    "copying to rows of several matrices does, too": (
        "split_row_ops",
        SPLITTING.format("rows(j1) = m1"),
        ["m2(1:2, :) = m1(0:1, :)[i0]", "m3 = m1(2:3, :)"],
        [],
    ),
    "a scaled copy scales in place": (
        "merge_variables",
        between("m2 = zeros\nm3 = zeros\nm3 = affine.propagate(m1)\nm2 = 0.5 * m3"),
        ["m2 = 0.5 * m2"],
        [],
    ),
    "an input that is only copied to an output becomes the output": (
        "merge_variables",
        between("m2 = zeros\nm2 = m1"),
        ["m1 = 4 x 4", "m1 = accept input", "provide output = m1", "segment end"],
        ["zeros", "free"],
    ),
    "matrices that are copied side by side are computed there": (
        "merge_variables",
        """
        m4 = 4 x 8
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m5 = zeros
        m2 = affine.propagate(m1)
        m3 = affine2.propagate(m1)
        m4(:, 0:3) = m2
        m4(:, 4:7) = m3
        m5 = wide.propagate(m4)
        provide output = m5
        segment end
        """,
        ["m2(:, 0:3) = affine.propagate(m1)", "m2(:, 4:7) = affine2.propagate(m1)"],
        [],
    ),
    "both copies of a matrix go, whichever comes first": (
        "merge_variables",
        """
        m3 = 8 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m5 = zeros
        m2 = affine.propagate(m1)
        m3(0:3, :) = m2
        m4 = m2
        m5 = affine2.propagate(m4)
        m3(0:3, :) += m5
        m1 = affine2.propagate(m3(0:3, :))
        provide output = m1
        segment end
        """,
        ["m1 = affine2.propagate(m2(0:3, :))"],
        [" = m2\n"],
    ),
    **{
        f"of two terms, the one that is used later is added first, where {where}": (
            "order_additions",
            between(
                "m3 = zeros\nm4 = zeros\nm2 = zeros\nm3 = affine.propagate(m1)\n"
                f"m4 = affine2.propagate(m1)\n{terms}"
            ),
            ["m2 += m4", "m2 += m3"],
            [],
        )
        for where, terms in (
            ("it is second", "m2 += m3\nm2 += m4"),
            ("it is first", "m2 += m4\nm2 += m3"),
        )
    },
    "a term that has all times at once takes the terms that are added time by time": (
        "order_additions",
        """
        m1 = 8 x 4
        m2 = 8 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m5 = zeros
        m6 = zeros
        m2 = affine.propagate(m1)
        m3 += m2(0:3, :)
        m4 = affine2.propagate(m3)
        m5 += m4
        m5 += m2(4:7, :)
        m6 = affine2.propagate(m5)
        provide output = m6
        segment end
        """,
        ["m5 += m2(4:7, :)", "m5 += m4"],
        [],
    ),
    "a derivative has no place in a value that the same command reads": (
        "merge_variables",
        """
        m1 = accept input
        m2 = zeros
        m2 = sigmoid.propagate(m1)
        provide output = m2
        segment end
        m3 = accept output
        m4 = zeros
        m4 = sigmoid.backprop(m3, output m2)
        provide input = m4
        """,
        ["m1 = sigmoid.propagate(m1)", "m3 = sigmoid.backprop(m2, output m1)"],
        [],
    ),
    "a backward pass for the update alone computes no input derivative": (
        "remove_dead_commands",
        BACKWARD.format("affine", "", "input m1"),
        ["- = affine.backprop(m3, input m1)"],
        ["m4 = zeros"],
    ),
    "no memo is made for a backward pass that is gone": (
        "remove_dead_commands",
        BACKWARD.format("norm", ", memo 1", "output m2, memo 1"),
        ["m2 = norm.propagate(m1)"],
        ["backprop"],
    ),
    "commands whose results only dead commands read are dead": (
        "remove_dead_commands",
        between(f"m2 = zeros\n{DEAD}m2 = affine.propagate(m1)"),
        ["m1 = accept input", "m2 = zeros", "m2 = affine.propagate(m1)", "provide output = m2"],
        ["m3 =", "m4 =", "affine2"],
    ),
}


@pytest.mark.parametrize(("name", "text", "present", "absent"), EFFECTS.values(), ids=EFFECTS)
def test_effects(name: str, text: str, present: list[str], absent: list[str]) -> None:
    """A pass makes these commands, in this order, and takes others away; results stay the same."""
    after = renumber(PASSES[name].run(draft(text), OPTIONS))

    lines = brief(after).splitlines()
    assert [line for line in dict.fromkeys(lines) if line in present] == present
    assert [part for part in absent if part in brief(after)] == []
    verify_equivalent(NNET, computation(text), after.computation())


def test_lossy_compression_is_not_equivalent() -> None:
    """Compression to 16 bits is optional, and the proof notices its loss."""
    text = """
        m1 = accept input
        m2 = undefined
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        m3 = accept output
        m4 = zeros
        m4 = affine.backprop(m3, input m1)
        provide input = m4
        """

    after = memory_compression(draft(text), level=2).computation()

    assert "compress m1 (type 3, truncate 1, range 10.0)" in brief(after)
    check_computation(NNET, after)
    with pytest.raises(EquivalenceError, match="'input' in segment 1 differs in 4 of 4 rows"):
        verify_equivalent(NNET, computation(text), after)


def test_trimming_leaves_no_list_behind() -> None:
    """An unused list can name rows that the pass cuts off."""
    text = """
        m1 = 6 x 4
        j0 = m1[0, 5, 1, 4]
        j1 = m1(1:4, :)[0:3]
        m2 = accept input
        m1 = zeros
        m1(1:4, :) = m2
        m2 = rows(j1)
        provide output = m2
        segment end
        """

    after = trim_matrices(draft(text)).computation()

    assert after.matrices[1:].tolist() == [[4, 4], [4, 4]]
    assert len(after.indexes_multi) == 1


@pytest.mark.parametrize(("memory", "is_extended"), [("zeros", True), ("undefined", False)])
def test_undefined_rows_are_not_copied(memory: str, is_extended: bool) -> None:
    """A matrix is extended by another's rows only if these are defined."""
    before = f"""
        m1 = 10 x 4
        m2 = 9 x 8
        m3 = 9 x 4
        m4 = 9 x 4
        m4 = accept input
        m1 = {memory}
        m1(0:8, :) = m4
        m2 = zeros
        m3 = undefined
        m2(:, 0:3) = m1(0:8, :)
        m2(:, 4:7) = m4
        m3 = wide.propagate(m2)
        provide output = m3
        segment end
    """

    after = extend_matrices(draft(before))

    check_computation(NNET, after.computation(), check_unused=False)
    assert ("m2(:, 0:3) = m1\n" in brief(after)) == is_extended
