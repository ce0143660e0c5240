"""Kernels made for devices, and models there, run on the processor."""

from __future__ import annotations

import re

import numpy as np
import pytest
from computations import bound, loop, needs_compiler, program, single
from emulated_device import DryRun, HostPlatform
from nnet3 import Model
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.cpu import tape as cpu_tape
from nnet3_runtime_cuda.cuda.fusion import MOST_POINTERS
from nnet3_runtime_cuda.cuda.machine import DeviceMachine
from nnet3_runtime_cuda.cuda.recorded import View
from nnet3_runtime_cuda.operations import Tape
from small_networks import RECURRENT, network

TIMES = range(4)

MASKS = {
    "dropout": "type=DropoutComponent dim=40 dropout-proportion=0.5",
    "dropout of rows": "type=DropoutComponent dim=40 dropout-proportion=0.5 dropout-per-frame=true",
    "general dropout": "type=GeneralDropoutComponent dim=40 dropout-proportion=0.5",
    "bands": "type=GeneralDropoutComponent dim=40 specaugment-max-proportion=0.5",
}


def outputs(component: str, *, seed: int) -> list[np.ndarray]:
    """The outputs of a component for ones, in two runs."""
    computer = bound(single(component, dim=40), TIMES, device=HostPlatform(), seed=seed)
    ones = np.ones((2 * len(TIMES), 40), dtype=np.float32)
    return [computer.forward({"input": ones})["output"] for _ in range(2)]


@needs_compiler
@pytest.mark.parametrize("component", MASKS.values(), ids=MASKS)
def test_masks_come_from_the_seed(component: str) -> None:
    """Equal seeds give equal masks of two values; each run gives another mask."""
    first, again, other = (outputs(component, seed=seed) for seed in (5, 5, 6))

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, other)
    assert len(np.unique(first)) == 2
    assert np.unique(first)[0] == 0.0


@needs_compiler
def test_uniform_numbers() -> None:
    """About the given proportion of elements is dropped."""
    nnet = single("type=DropoutComponent dim=500 dropout-proportion=0.3", dim=500)
    computer = bound(nnet, range(100), device=HostPlatform())

    kept = computer.forward({"input": np.ones((200, 500), dtype=np.float32)})["output"]

    assert abs(kept.mean() - 0.7) < 0.01
    assert np.abs(kept.mean(axis=0) - 0.7).max() < 0.2


def test_the_tapes_are_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tape for devices has the operations of the protocol, and nothing of the processor's."""
    monkeypatch.setattr(cpu_tape, "panels_are_faster", lambda: True)
    tape = DeviceMachine(DryRun()).tape()

    kinds = type(tape).__mro__
    assert Tape in kinds
    assert not any(kind.__module__.startswith("nnet3_runtime_cuda.cpu") for kind in kinds)
    assert not hasattr(tape, "record")
    assert not any(tape.gains_by_panels(rows) for rows in (1, 8, 64, 256))


@needs_compiler
def test_small_products() -> None:
    """Each matrix of a stack is multiplied by its own factor, or by a shared one."""
    rng = np.random.default_rng(0)
    a, b, same = (
        rng.normal(size=shape).astype("f4") for shape in ((2, 9, 4, 5), (9, 5, 6), (5, 6))
    )
    out, with_same = np.zeros((2, 2, 9, 4, 6), np.float32)
    machine = DeviceMachine(HostPlatform())
    tape = machine.tape()
    tape.small_products(a, b, out)
    tape.small_products(a, same, with_same)

    tape.run()

    machine.pull([out, with_same])
    for found, factor in ((out, b), (with_same, same)):
        np.testing.assert_allclose(found, a @ factor, rtol=1e-5, atol=1e-5)


def sums_of_ranges(machine: DeviceMachine) -> list[np.ndarray]:
    """Two sums of ranges of rows of one matrix, on a device, and one of squares; (2, 5) each."""
    source = np.arange(100, dtype=np.float32).reshape(20, 5)
    tape, sums = machine.tape(), [machine.zeros((2, 5), np.float32) for _ in range(3)]
    tape.range_sum(source, np.array([[0, 3], [4, 20]], np.int32), sums[0])
    tape.range_sum(source, np.array([[7, 7], [1, 2]], np.int32), *sums[1:])
    tape.run()
    machine.pull(sums)
    return sums


@needs_compiler
def test_sums_of_ranges_share_a_launch() -> None:
    """Neighbouring sums of ranges of rows are one launch; the values are those of each alone."""
    counting = DryRun()
    sums_of_ranges(DeviceMachine(counting))
    assert counting.launches == 1

    source = np.arange(100, dtype=np.float32).reshape(20, 5)
    first, second, squares = sums_of_ranges(DeviceMachine(HostPlatform(strict=True)))
    np.testing.assert_array_equal(first, [source[:3].sum(axis=0), source[4:].sum(axis=0)])
    np.testing.assert_array_equal(second, [np.zeros(5), source[1]])
    np.testing.assert_array_equal(squares, [np.zeros(5), source[1] ** 2])


@needs_compiler
@pytest.mark.any_versions
def test_numbers_of_the_host_arrive() -> None:
    """Many numbers and arrays of the host, in several blocks, are on the device in each run."""
    machine = DeviceMachine(HostPlatform(strict=True))
    tape, numbers, array = machine.tape(), np.zeros(3000, np.float32), np.zeros(20000, np.float32)
    run = iter(range(2))
    tape.note(lambda: state.append(next(run)))
    state: list[int] = []
    for number in range(len(numbers)):
        value = tape.value(lambda number=number: number + 5000 * state[-1])
        tape.copy(value, numbers[number : number + 1])
    tape.copy(tape.host(lambda out: out.fill(state[-1] + 7), len(array)), array)
    for offset in (0, 5000):
        tape.run()
        machine.pull([numbers, array])
        np.testing.assert_array_equal(numbers, np.arange(len(numbers)) + offset)
        np.testing.assert_array_equal(array, 7 + offset // 5000)


def view(shape: tuple[int, ...], strides: tuple[int, ...], address: int = 1 << 20) -> View:
    """A view of float32."""
    return View(address, shape, strides, "f4")


@pytest.mark.parametrize(
    ("other", "overlaps"),
    [
        (view((4, 3), (8, 1), (1 << 20) + 12), True),  # columns 3 to 5
        (view((4, 4), (8, 1), (1 << 20) + 16), False),  # columns 4 to 7
        (view((4, 1), (8, 1), (1 << 20) + 16), False),
        (view((2, 4), (-8, 1), (1 << 20) + 32), True),  # rows 1 and 0
        (view((2, 4), (8, 1), (1 << 20) + 128), False),  # behind
    ],
)
def test_views_overlap(other: View, overlaps: bool) -> None:
    """Views of different columns of the same rows do not overlap, though their spans do."""
    columns = view((4, 4), (8, 1))

    assert columns.overlaps(other) is overlaps
    assert other.overlaps(columns) is overlaps


def test_element_wise_work_is_one_kernel() -> None:
    """A sigmoid is four operations and one kernel; its output, used once, is stored once."""
    platform = DryRun()

    bound(single("type=SigmoidComponent dim=40", dim=40), TIMES, training=False, device=platform)

    (source,) = platform.sources
    (kernel,) = [text for text in source.split('extern "C"') if "exp_(v" in text]
    assert kernel.count("] = v") == 1


def test_plain_gradient_of_a_splice_is_one_product() -> None:
    """All taps of a narrow map without bias are computed together, not each by itself."""
    nnet = single(
        "type=TdnnComponent input-dim=20 output-dim=8 time-offsets=-1,0,1 use-bias=false", dim=20
    )
    platform = DryRun()

    bound(nnet, range(-1, 41), range(40), sequences=1, device=platform, trainable=True)

    assert len(platform.products) == 3  # forward, for the input, for the parameters


@pytest.mark.parametrize("shape", [(3,), (3, 40)])
def test_kernels_take_no_more_pointers_than_devices_allow(shape: tuple[int, ...]) -> None:
    """Copies between very many places are divided among kernels."""
    platform = DryRun()
    tape = DeviceMachine(platform).tape()
    for number in range(3 * MOST_POINTERS):
        lengths = (*shape[:-1], shape[-1] + number % 3)
        tape.copy(tape.persistent(*lengths), tape.persistent(*lengths))
    tape.run()

    (source,) = platform.sources
    pointers = [parameters.count("*") for parameters in re.findall(r"__global__ .*?{", source)]
    assert MOST_POINTERS // 16 < max(pointers) <= MOST_POINTERS


@needs_compiler
def test_state_is_handed_over() -> None:
    """Outputs chunk by chunk, and after a reset, are the processor's."""
    nnet = network(RECURRENT)
    computation = loop(nnet, 6)
    given = np.random.default_rng(1).standard_normal((36, 4), dtype=np.float32)
    devices = HostPlatform(strict=True), "cpu"
    computers = [NnetComputer(nnet, computation, each) for each in devices]
    for _ in range(2):
        for chunk in np.split(given, 6):
            found, expected = (each.forward({"input": chunk})["output"] for each in computers)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        for each in computers:
            each.reset()


PADDED = """
m1 = 4 x 2
m2 = 2 x 2
m3 = 2 x 2
m2 = accept input
m1 = undefined
m1(1:2, :) = m2
compress m1 (type 4, truncate 1, range 10.0)
decompress m1
m3 = undefined
m3 = m1(1:2, :)
provide output = m3
"""
"""A matrix of which only two rows are set is compressed as a whole."""


@needs_compiler
def test_rows_without_values_are_not_read() -> None:
    """Rows that a computation never sets are set before a kernel reads them with others."""
    nnet = single("type=NoOpComponent dim=2", dim=2)
    computer = NnetComputer(nnet, program(nnet, PADDED), HostPlatform(strict=True))
    given = np.array([[1, 2], [3, 4]], np.float32)
    found = computer.forward({"input": given})["output"]
    np.testing.assert_allclose(found, given, rtol=0, atol=1e-3)


@needs_compiler
def test_models_compute_utterances() -> None:
    """A model's outputs are the processor's, for utterances of any length."""
    nnet = network(RECURRENT)
    here, there = Model(nnet), Model(nnet, device=HostPlatform())
    rng = np.random.default_rng(2)
    for frames in (7, 60, 7):
        features = rng.standard_normal((frames, 4), dtype=np.float32)
        found, expected = (each.compute(features, frames_per_chunk=20) for each in (there, here))
        assert found.shape == (frames, 3)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
