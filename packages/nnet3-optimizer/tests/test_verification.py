"""With `verify`, a wrong pass is named, with the difference."""

from collections.abc import Callable

import attrs
import pytest
from brief_computations import NNET, computation
from nnet3_computation.commands import FIRST_OPERAND_COLUMN, OPCODE_COLUMN, Propagate
from nnet3_optimizer import OptimizeOptions, PassError, optimize, pipeline
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.pipeline import PIPELINE, Pass

TEXT = """
m1 = accept input
m2 = undefined
m2 = affine.propagate(m1)
provide output = m2
segment end
"""


def calls_another_component(draft: Draft) -> Draft:
    """A pass that runs affine2 for affine."""
    table = draft.table.copy()
    is_call = table[:, OPCODE_COLUMN] == Propagate.OPCODE
    table[is_call, FIRST_OPERAND_COLUMN] = NNET.component_index("affine2")
    return attrs.evolve(draft, table=table)


def frees_early(draft: Draft) -> Draft:
    """A pass that frees the input before it is used."""
    order = [0, 5, 1, 2, 3, 4]
    return attrs.evolve(draft, table=draft.table[order])


def names_no_matrix(draft: Draft) -> Draft:
    """A pass whose commands refer to a submatrix that does not exist."""
    table = draft.table.copy()
    table[0, FIRST_OPERAND_COLUMN] = len(draft.submatrices)
    return attrs.evolve(draft, table=table)


def with_faulty_pass(monkeypatch: pytest.MonkeyPatch, faulty: Callable[[Draft], Draft]) -> None:
    """Runs the faulty pass after a correct one."""
    first = next(each for each in PIPELINE if each.name == "consolidate_io")
    monkeypatch.setattr(pipeline, "PIPELINE", (first, Pass(faulty, lambda options: True)))


def test_another_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the pass, earlier passes, the node and the element."""
    with_faulty_pass(monkeypatch, calls_another_component)
    assert optimize(NNET, computation(TEXT)) is not None

    with pytest.raises(PassError) as caught:
        optimize(NNET, computation(TEXT), OptimizeOptions(verify=True))

    assert caught.value.name == "calls_another_component"
    assert caught.value.before == ("consolidate_io",)
    assert str(caught.value) == (
        "pass 'calls_another_component', after consolidate_io: what is provided for node 'output' "
        "in segment 0 differs in 4 of 4 rows: 0, 1, 2, 3; row 0 from column 0 on"
    )
