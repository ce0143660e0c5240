"""Live bytes are counted correctly, and plans separate matrices that live at the same time."""

import itertools

import numpy as np
import pytest
from brief_computations import computation
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nnet3_computation import NnetComputation, live_bytes, peak_bytes, plan_memory
from nnet3_computation.commands import CompressMatrix, DecompressMatrix
from nnet3_computation.memory import compressed_bytes
from nnet3_computation.memory.live import Blocks, holdings
from nnet3_computation.memory.plan import Gaps, from_the_peak, pack, search
from nnet3_descriptors import Nnet
from nnet3_optimizer import optimize
from optimizer_networks import examples

TEXT = """
m2 = 4 x 8
m1 = accept input
m2 = undefined
m2(:, 0:3) = m1
free m1
m3 = zeros
free m2
provide output = m3
segment end
"""


def test_live_bytes_follow_the_commands() -> None:
    """Inputs count from their acceptance, outputs to the end, with four bytes an element."""
    live = live_bytes(computation(TEXT))

    assert live.tolist() == [64, 192, 192, 128, 192, 64, 64, 64]
    assert peak_bytes(computation(TEXT)) == 192


@pytest.mark.parametrize(("kind", "kept"), [(1, 16), (2, 16), (3, 32), (4, 32), (5, 4)])
def test_compressed_matrices_count_at_their_compressed_size(kind: int, kept: int) -> None:
    """A compressed matrix has two bytes, one byte, or one bit an element."""
    text = f"""
    m1 = accept input
    compress m1 (type {kind}, truncate 1)
    segment end
    decompress m1
    """

    assert live_bytes(computation(text)).tolist() == [64, kept, kept, 64, 0]


def test_compressed_form_lies_apart_from_the_elements() -> None:
    """During a conversion, the elements and their converted form count."""
    text = """
    m1 = 40 x 4
    m1 = accept input
    compress m1 (type 5, truncate 1, range 0.0)
    segment end
    decompress m1
    """

    plan = plan_memory(computation(text), alignment=4)

    assert sorted([plan.offsets[1], plan.compressed_offsets[1]]) in ([0, 40], [0, 640])
    assert plan.arena_bytes == 640 + 40


def test_compressed_form_has_a_place_of_its_own() -> None:
    """A compressed matrix has an offset for its elements and one for its compressed form."""
    text = """
    m1 = accept input
    compress m1 (type 1, truncate 1)
    m2 = zeros
    provide output = m2
    segment end
    decompress m1
    """

    plan = plan_memory(computation(text), alignment=16)

    assert plan.compressed_offsets[2] == -1
    places = {"m1": plan.offsets[1], "packed": plan.compressed_offsets[1], "m2": plan.offsets[2]}
    assert min(places.values()) >= 0
    assert abs(places["packed"] - places["m2"]) >= 16
    assert abs(places["m1"] - places["m2"]) >= 64


def test_taken_memory_has_the_same_place() -> None:
    """A matrix that takes over the memory of another has its offset."""
    text = TEXT.replace("free m1\n", "").replace("m3 = zeros", "m3 = take m1")

    plan = plan_memory(computation(text))

    assert plan.offsets[3] == plan.offsets[1]


def test_matrices_that_follow_each_other_share_memory() -> None:
    """The arena is as large as the largest sum of live bytes."""
    plan = plan_memory(computation(TEXT))

    assert plan.arena_bytes == plan.lower_bound_bytes == 192
    assert plan.offsets[0] == -1


def test_offsets_are_aligned_and_read_only() -> None:
    """Offsets are multiples of the alignment, and read-only."""
    plan = plan_memory(computation(TEXT), alignment=128)

    assert (plan.offsets[1:] % 128 == 0).all()
    with pytest.raises(ValueError, match="read-only"):
        plan.offsets[1] = 0


def test_nothing_needs_no_memory() -> None:
    """A computation without matrices has an empty arena."""
    plan = plan_memory(NnetComputation())

    assert (plan.arena_bytes, plan.lower_bound_bytes, plan.offsets.tolist()) == (0, 0, [-1])


def keeps_apart(blocks: Blocks, places: np.ndarray) -> bool:
    """Whether blocks that are needed at the same time do not overlap."""
    offsets, sizes = places[blocks.block], blocks.sizes[blocks.block]
    for span in range(len(blocks.block)):
        together = (blocks.begin < blocks.end[span]) & (blocks.end > blocks.begin[span])
        together &= blocks.block != blocks.block[span]
        meets = (offsets < offsets[span] + sizes[span]) & (offsets + sizes > offsets[span])
        if (together & meets).any():
            return False
    return True


@st.composite
def random_blocks(draw: st.DrawFn) -> Blocks:
    """Blocks, some of them with several spans of time."""
    sizes, spans = [], []
    for block in range(draw(st.integers(1, 14))):
        sizes.append(draw(st.integers(1, 9)))
        at = draw(st.integers(0, 12))
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            end = at + draw(st.integers(1, 6))
            spans.append((block, at, end))
            at = end + draw(st.integers(1, 4))
    block, begin, end = np.array(spans, np.int64).T
    return Blocks(sizes=np.array(sizes, np.int64), block=block, begin=begin, end=end)


@given(random_blocks())
@settings(max_examples=3 * settings.default.max_examples)
def test_packing_keeps_blocks_apart(blocks: Blocks) -> None:
    """Blocks needed at one time do not overlap; no packing is below the largest sum of sizes."""
    sums = [
        int(blocks.sizes[blocks.block[(blocks.begin <= t) & (blocks.end > t)]].sum())
        for t in range(int(blocks.end.max()))
    ]

    assert blocks.lower_bound == max(sums)
    for places in (from_the_peak(blocks), pack(blocks)):
        assert keeps_apart(blocks, places)
        assert (places >= 0).all()
        assert blocks.arena_bytes(places) >= blocks.lower_bound


def test_what_begins_near_the_peak_is_stacked_last() -> None:
    """Blocks that begin when nearly the peak is in use are stacked in one piece above others."""
    blocks = Blocks(
        sizes=np.array([50, 40, 8, 42]),
        block=np.array([0, 1, 2, 3]),
        begin=np.array([0, 2, 3, 5]),
        end=np.array([9, 5, 7, 8]),
    )

    assert blocks.peak == 5
    assert blocks.stack.tolist() == [0, 2, 3]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_chains_need_no_more_than_two_neighbours(sizes: list[int]) -> None:
    """Blocks that are each needed until the next, smaller one lie at alternating ends."""
    sizes.sort(reverse=True)
    begin = np.arange(len(sizes))
    blocks = Blocks(sizes=np.array(sizes), block=begin, begin=begin, end=begin + 2)

    size = blocks.arena_bytes(from_the_peak(blocks))

    assert size == max(map(sum, itertools.pairwise(sizes)), default=sizes[0])


@given(random_blocks())
@settings(max_examples=settings.default.max_examples)
def test_search_meets_the_capacity(blocks: Blocks) -> None:
    """A packing that the search finds is valid; with room for all blocks it finds one."""
    for capacity in (blocks.lower_bound, blocks.lower_bound * 5 // 4):
        found = search(blocks, capacity)
        assert found is None or keeps_apart(blocks, found)
        assert found is None or blocks.arena_bytes(found) <= capacity

    assert search(blocks, int(blocks.sizes.sum())) is not None


def test_search_takes_choices_back() -> None:
    """The search undoes choices that leave no room for later blocks."""
    sizes = np.array([2, 1, 2, 1, 2], np.int64)
    spans = np.array([(0, 0, 4), (1, 0, 2), (2, 2, 6), (3, 4, 6), (4, 6, 8)], np.int64)
    blocks = Blocks(sizes=sizes, block=spans[:, 0], begin=spans[:, 1], end=spans[:, 2])

    found = search(blocks, blocks.lower_bound)

    assert found is not None
    assert blocks.arena_bytes(found) == blocks.lower_bound == 4


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=60))
@example([(1, 2), (1, 2), (1, 3), (1, 1), (2, 2), (2, 2), (3, 1)])  # a gap grows at the end
def test_gaps_hand_out_what_is_free(steps: list[tuple[int, int]]) -> None:
    """No byte belongs to two holders at a time, or to a holder that must stay clear of it."""
    gaps = Gaps(10)
    gaps.kept[10].append(0)
    held: list[tuple[int, int]] = []
    for step, number in steps:
        if step == 0 and held:
            start, size = held.pop(number % len(held))
            gaps.kept[size].append(start)
            continue
        taken = {byte for begin, size in held for byte in range(begin, begin + size)}
        if step == 1:
            start = gaps.take_clear(number, [(2, 4), (9, 12)])
            assert not {2, 3, 9, 10, 11}.intersection(range(start, start + number))
        elif step == 2:
            start = next(at for at in range(500) if not taken & set(range(at, at + number)))
            gaps.take_at(start, number)
        else:
            start = gaps.take(number)
        assert start >= 0
        assert not taken.intersection(range(start, start + number))
        held.append((start, number))


def test_gaps_grow_only_where_nothing_fits() -> None:
    """Below the ceiling the upper end is taken; if nothing fits, the last gap is extended."""
    gaps = Gaps(8)
    gaps.kept[8].append(0)

    assert gaps.take(3) == 5
    gaps.kept[3].append(5)
    assert gaps.take(10) == 0
    assert gaps.take(1) == 10


def test_gaps_stay_clear_of_what_is_reserved() -> None:
    """A stretch is taken behind the reserved ones, and a given stretch can be taken."""
    gaps = Gaps(0)

    assert gaps.take_clear(4, [(2, 6), (8, 9)]) == 9
    gaps.take_at(2, 4)
    assert gaps.take(2) == 0
    assert gaps.take(3) == 6


def held_during_commands(computation: NnetComputation) -> list[int]:
    """The live bytes after each command, plus those of a form that the command converted."""
    packed: dict[int, int] = {}
    during = []
    for command, live in zip(computation.commands, live_bytes(computation).tolist(), strict=True):
        given_up = 0
        if isinstance(command, CompressMatrix | DecompressMatrix):
            matrix = int(computation.submatrices[command.matrix, 0])
            elements = 4 * int(computation.matrices[matrix].prod())
            if isinstance(command, CompressMatrix):
                sizes = computation.matrices[matrix]
                packed[matrix] = compressed_bytes(sizes, command.compression_type)
                given_up = elements
            else:
                given_up = packed.pop(matrix)
        during.append(live + given_up)
    return during


@given(examples())
@settings(max_examples=3 * settings.default.max_examples // 10)
def test_plan_of_a_computation(example: tuple[Nnet, NnetComputation]) -> None:
    """The bound of a plan is the most held during a command; live matrices do not overlap."""
    nnet, compiled = example
    for each in (compiled, optimize(nnet, compiled)):
        plan = plan_memory(each, alignment=1)
        held = holdings(each)
        offsets = np.zeros(len(held.blocks.sizes), np.int64)
        for number, places in (
            (held.matrix_block, plan.offsets),
            (held.compressed_block, plan.compressed_offsets),
        ):
            offsets[number[number >= 0]] = places[number >= 0]

        assert plan.lower_bound_bytes == max(held_during_commands(each), default=0)
        assert plan.lower_bound_bytes >= peak_bytes(each)
        assert keeps_apart(held.blocks, offsets)
        assert held.blocks.arena_bytes(offsets) == plan.arena_bytes
