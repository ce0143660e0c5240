"""Fusion: which operations share a kernel, in which order, and which results are stored."""

from __future__ import annotations

import itertools

import pytest
from nnet3_runtime_cuda.cuda import fusion
from nnet3_runtime_cuda.cuda.fusion import group_operations, later_readers, with_epilogues
from nnet3_runtime_cuda.cuda.recorded import HandWritten, Map, Operation, Product, Special, View

ROWS, COLUMNS = 64, 32


def matrix(number: int, *, first: int = 0, rows: int = ROWS) -> View:
    """Some rows of matrix `number`."""
    address = (1 << 20) + number * (1 << 16) + 4 * COLUMNS * first
    return View(address, (rows, COLUMNS), (COLUMNS, 1), "f4")


def add(a: View, b: View, out: View, **conditions: object) -> Map:
    """out = a + b."""
    return Map(function="add", operands=(a, b), out=out, shape=out.shape, **conditions)


def kernel(read: tuple[View, ...], written: tuple[View, ...]) -> Special:
    """A kernel written by hand."""
    return Special(kernel=HandWritten("some", ""), read=read, written=written)


def numbers(operations: list[Operation]) -> list[list[int]]:
    """The numbers of the operations of each group."""
    return [group.numbers for group in group_operations(operations)]


A, B, C, D, E, F = (matrix(number) for number in range(6))


BACK, BEHIND, APART = [[0, 2], [1]], [[1], [0, 2]], [[0], [1], [2]]
"""The last operation goes back to its group, which can also come behind the kernel; or neither."""


@pytest.mark.parametrize(
    ("between", "last", "groups"),
    [
        (kernel((D,), (E,)), add(C, B, F), BACK),
        (kernel((D,), (E,)), add(C, E, F), BEHIND),  # reads what the kernel writes
        (kernel((F,), (E,)), add(C, B, F), BEHIND),  # overwrites what the kernel reads
        (kernel((C,), (E,)), add(E, D, F), APART),  # the kernel reads what the first has written
        (kernel((D,), (B,)), add(B, D, F), APART),  # or overwrites what the first has read
        (kernel((D,), (A,)), add(A, D, F), APART),
        (kernel((D,), ()), add(C, B, F), APART),  # may touch anything, by a table of addresses
    ],
)
def test_order_is_kept_where_it_matters(
    between: Special, last: Map, groups: list[list[int]]
) -> None:
    """Two operations share a group on either side of a kernel that does not depend on them."""
    assert numbers([add(A, B, C), between, last]) == groups


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Considers small matrices, too."""
    monkeypatch.setattr(fusion, "SMALLEST_STORE", 1)


def readers(operations: list[Operation]) -> list[list[int] | None]:
    """The readers of each result; None if it must be stored."""
    return later_readers(operations, lambda view: False)


def test_result_that_is_overwritten_need_not_be_stored(small: None) -> None:
    """The readers of a result are known once all of its memory has been overwritten."""
    halves = [matrix(2, first=first, rows=ROWS // 2) for first in (0, ROWS // 2)]
    first = add(A, B, C)
    assert readers([first])[0] is None
    assert readers([first, add(C, B, D), add(A, B, C)])[0] == [1]
    assert readers([first, add(A, B, C)])[0] == []
    assert readers([first, add(D, B, halves[0])])[0] is None
    rows = [matrix(n, rows=ROWS // 2) for n in (0, 1)]
    assert readers([first, *(add(*rows, half) for half in halves)])[0] == []


def test_result_may_be_wanted_after_all(small: None) -> None:
    """Guarded operations, and writes to other elements, do not overwrite a result."""
    first, guard = add(A, B, C), View(1 << 10, (), (), "f4")
    for other in (add(A, B, C, guards=(guard,)), add(A, B, C, decision=3)):
        assert readers([first, other])[0] is None
    wide = View(C.address, (ROWS, COLUMNS // 2), (COLUMNS, 1), "f4")
    narrow = [View(v.address, wide.shape, wide.strides, "f4") for v in (A, B)]
    assert readers([first, add(*narrow, wide)])[0] is None
    assert readers([first, kernel((D,), ()), add(A, B, C)])[0] is None
    assert readers([first, kernel((D,), (C,)), add(A, B, C)])[0] == [1]


def test_every_reader_counts(small: None) -> None:
    """A read of a part of the result counts until that part is overwritten."""
    halves = [matrix(2, first=first, rows=ROWS // 2) for first in (0, ROWS // 2)]
    parts = [matrix(n, rows=ROWS // 2) for n in range(4)]
    overwritten = add(parts[0], parts[1], halves[0])
    for number, half in enumerate(halves):
        reads = add(half, parts[1], parts[3])
        found = readers([add(A, B, C), overwritten, reads, add(A, B, C)])[0]
        assert found == ([] if number == 0 else [2])


def test_groups_hold_every_operation_once() -> None:
    """Fusion loses no operation, and keeps the order of operations on the same memory."""
    for sources in itertools.product(range(3), repeat=4):
        operations: list[Operation] = [
            add(matrix(k), matrix(n), matrix(3 + n)) for k, n in enumerate(sources)
        ]
        operations.insert(2, kernel((matrix(4),), (matrix(0),)))
        order = list(itertools.chain(*numbers(operations)))
        assert sorted(order) == list(range(len(operations)))
        for a, b in itertools.combinations(range(len(operations)), 2):
            one, two = operations[a], operations[b]
            touch = any(
                v.overlaps(w)
                for v, w in (
                    *itertools.product(one.writes, (*two.reads, *two.writes)),
                    *itertools.product(one.reads, two.writes),
                )
            )
            assert not touch or order.index(a) < order.index(b)


BIAS, COLUMN = View(1 << 10, C.shape, (0, 1), "f4"), View(1 << 10, C.shape, (1, 0), "f4")


@pytest.mark.parametrize(
    ("added", "addend", "has_bias"),
    [
        ([D], D, False),
        ([BIAS], None, True),
        ([D, BIAS], D, True),
        ([BIAS, D], D, True),
    ],
    ids=["matrix", "bias", "matrix, bias", "bias, matrix"],
)
def test_what_is_added_to_a_product(added: list[View], addend: View | None, has_bias: bool) -> None:
    """A bias and one matrix become parts of the product; a second one of a kind does not."""
    product, after = Product(a=A, b=B, out=C), [add(C, view, C) for view in added]
    (found,) = with_epilogues([product, *after])
    assert isinstance(found, Product)
    assert (found.addend, found.bias is not None) == (addend, has_bias)
    assert with_epilogues([product, *after, *after])[1:] == after


def stacked(view: View) -> View:
    """Eight rows of a matrix at a time, every fourth one of four times as many."""
    rows, columns = view.strides
    return View(view.address, (4, 8, COLUMNS), (rows, 4 * rows, columns), "f4")


def test_what_is_added_to_a_stack_of_products() -> None:
    """A bias and a stack of matrices become parts of the products; a vector for each does not."""
    a, b, c, d = map(stacked, (A, B, C, D))
    bias = View(1 << 10, c.shape, (0, 0, 1), "f4")
    (found,) = with_epilogues([Product(a=a, b=b, out=c), add(c, d, c), add(c, bias, c)])
    assert isinstance(found, Product)
    assert found.addend == d
    assert found.bias == View(1 << 10, (COLUMNS,), (1,), "f4")

    after = add(c, View(1 << 10, c.shape, (COLUMNS, 0, 1), "f4"), c)
    operations = [Product(a=a, b=b, out=c), after]
    assert with_epilogues(operations) == operations


@pytest.mark.parametrize(
    "after",
    [
        add(C, D, E),
        add(C, COLUMN, C),
        add(C, C, C),
        add(C, matrix(2, first=1), C),
        add(C, D, C, decision=3),
        Map(function="multiply", operands=(C, D), out=C, shape=C.shape),
    ],
    ids=["elsewhere", "column", "itself", "overlapping", "not always", "factor"],
)
def test_what_does_not_belong_to_a_product(after: Map) -> None:
    """Other operations on the result of a product stay kernels."""
    operations = [Product(a=A, b=B, out=C), after]
    assert with_epilogues(operations) == operations
