"""Whole programs on the CUDA platform, with a stand-in for CuPy that is as strict as CUDA."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from computations import assert_near, bound, needs_compiler, passes, single
from emulated_device import HostPlatform, kernel_names
from nnet3_descriptors import vectorize
from nnet3_runtime_cuda import DeviceMemoryError, NnetComputer, RunError
from nnet3_runtime_cuda.cuda import split_products
from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform
from nnet3_runtime_cuda.cuda.split_products import Tiling, tiling_of
from random_components import TYPES, random_case
from small_networks import network, stacked
from strict_cupy import FakeArray, StrictCupy

pytestmark = needs_compiler

TIMES = range(4)

RUNS = 3
"""The first run makes the calls, the second captures them, the third replays."""


def kernels(source: str) -> Mapping[str, Callable[..., None]]:
    """The kernels of a source, built for the processor."""
    host = HostPlatform()

    def runs(kernel: Any) -> Callable[..., None]:
        def run(grid: Any, block: Any, addresses: list[int]) -> None:
            host.launch(kernel, grid, block, addresses)()

        return run

    return {name: runs(kernel) for name, kernel in host.build(source, kernel_names(source)).items()}


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


CASES = [(kind, 5) for kind in TYPES if "Dropout" not in kind and "Mask" not in kind]
"""Types whose results are not random, each with the seed of its configuration."""

OTHERS = {
    "LstmNonlinearity": 1,
    "GruNonlinearity": 3,
    "Normalize": 3,
    "ClipGradient": 1,
    "RestrictedAttention": 0,
    "Tdnn": 7,
    "TimeHeightConvolution": 0,
}
"""Seeds of other forms: without masks, a projection or context, with a logarithm, and so on."""


@pytest.mark.parametrize(("kind", "seed"), [*CASES, *OTHERS.items()])
def test_components(platform: CupyPlatform, kind: str, seed: int) -> None:
    """Outputs, derivatives and gradients are the processor's: called, captured and replayed."""
    case = random_case(kind, Random(seed))
    here, there = (case.bound(device=each) for each in ("cpu", platform))
    for run in range(RUNS):
        assert_near(passes(there, run), passes(here, run), 1e-4)


def affine(platform: Any, **options: Any) -> NnetComputer:
    """A computer of one affine component, for training."""
    nnet = single("type=AffineComponent input-dim=4 output-dim=3", dim=4)
    return bound(nnet, TIMES, optimized=True, device=platform, **options)


def test_training_steps(platform: CupyPlatform) -> None:
    """Parameters change as on the processor, step by step, without copies in between."""
    computers = [affine(each, trainable=True) for each in (platform, "cpu")]
    before = computers[1].device_nnet.parameters.copy()
    for run in range(RUNS):
        for computer in computers:
            computer.forward({"input": random((8, 4), run)})
            computer.backward({"output": random((8, 3), run + 100)})
            computer.device_nnet.take_step()
    found, expected = (computer.device_nnet.direction for computer in computers)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    found, expected = (vectorize(computer.device_nnet.current()) for computer in computers)
    assert np.abs(expected - before).max() > 1e-4
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


LAYERS = stacked(
    12,
    "a NaturalGradientAffine input-dim=36 output-dim=40",
    "r RectifiedLinear dim=40",
    "l Linear input-dim=40 output-dim=24",
    "t Tdnn input-dim=24 output-dim=40 time-offsets=0,1",
    "o Affine input-dim=40 output-dim=9",
    splice="Append(Offset(input, -1), input, Offset(input, 1))",
)


@pytest.mark.any_versions
@pytest.mark.parametrize(("natural_gradient", "tolerance"), [(False, 1e-5), (True, 5e-4)])
def test_split_products(
    cupy: StrictCupy,
    library: Any,
    natural_gradient: bool,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Networks whose products are all split give the outputs and the training of fp32.

    In three steps of the natural gradient the processor is as far from fp32 of the device.
    """
    limits = {"LEAST_FLOP": 0, "LEAST_TERMS": 1, "MOST_PADDING": np.inf, "START_SECONDS": 0}
    for name, value in limits.items():
        monkeypatch.setattr(split_products, name, value)
    tilings: list[Tiling] = []

    def kept(*given: int) -> Tiling:
        tilings.append(tiling_of(*given))
        return tilings[-1]

    monkeypatch.setattr(split_products, "tiling_of", kept)
    nnet = network(LAYERS)
    exact, found = (
        bound(
            nnet,
            range(-1, 7),
            range(5),
            sequences=8,
            optimized=True,
            device=CupyPlatform(cupy, library, 1, precision),
            trainable=True,
            natural_gradient=natural_gradient,
        )
        for precision in ("fp32", "fp32x3")
    )
    for run in range(RUNS):
        outputs = []
        for computer in (exact, found):
            outputs.append(computer.forward({"input": random((64, 12), run)})["output"])
            computer.backward({"output": random((40, 9), run + 100)})
            computer.device_nnet.take_step()
        np.testing.assert_allclose(outputs[1], outputs[0], rtol=0, atol=1e-5)
    changed, expected = (
        vectorize(each.device_nnet.current()) - vectorize(nnet) for each in (found, exact)
    )
    np.testing.assert_allclose(changed, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    assert len(tilings) > 10
    assert any(plan.parts > 1 for plan in tilings)


@pytest.mark.parametrize("is_there", [False, True])
def test_arrays_on_the_device(platform: CupyPlatform, cupy: StrictCupy, is_there: bool) -> None:
    """Outputs stay there on request, or if the inputs are there; nothing waits for the stream."""
    computer, expected = affine(platform), affine("cpu")
    for run in range(RUNS):
        values, derivative = random((8, 4), run), random((8, 3), run + 100)
        with cupy.cuda.Device(1), cupy.cuda.Stream(non_blocking=True) as stream:
            given, moved = values, derivative
            if is_there:
                given, moved = (FakeArray.written_by(stream, each) for each in (given, moved))
            output = computer.forward({"input": given}, on_device=not is_there)["output"]
            assert isinstance(output, cupy.ndarray)
            assert stream.work
            change = computer.backward({"output": moved})["input"]
            assert isinstance(change, cupy.ndarray if is_there else np.ndarray)
            assert bool(stream.work) == is_there
            found = [output.get(), change.get() if is_there else change]
        wanted = expected.forward({"input": values}, on_device=True)["output"]
        assert isinstance(wanted, np.ndarray)
        assert_near(found, [wanted, expected.backward({"output": derivative})["input"]], 1e-4)


def test_arrays_of_another_shape(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """Arrays on the device are checked like others, except for their values."""
    with cupy.cuda.Device(1):
        wrong = FakeArray.new(cupy.cuda, (7, 4), np.float32)
    with pytest.raises(RunError, match=r"input 'input'.*\(8, 4\).*\(7, 4\)"):
        affine(platform).forward({"input": wrong})


def test_memory_goes_with_the_computer(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """A program's memory is freed with it; the network keeps its own."""
    first = affine(platform)
    first.forward({"input": random((8, 4), 0)})
    used = platform.properties.free_bytes
    nnet = first.device_nnet
    second = NnetComputer(nnet, first._computation)
    for run in range(RUNS):
        second.forward({"input": random((8, 4), run)})
    assert second.memory_bytes > 0
    assert platform.properties.free_bytes <= used - second.memory_bytes
    del second
    gc.collect()
    assert platform.properties.free_bytes == used
    found, expected = (
        each.forward({"input": random((8, 4), 0)})["output"] for each in (first, affine("cpu"))
    )
    assert_near([found], [expected], 1e-4)


def test_too_little_memory(platform: CupyPlatform, cupy: StrictCupy) -> None:
    """The needed memory is stated before any is taken, with the minibatch that would fit."""
    needed = affine(platform, sequences=64).memory_bytes
    gc.collect()
    cupy.cuda.limit = cupy.get_default_memory_pool().used_bytes() + needed * 5 // 8
    blocks = len(cupy.cuda.blocks)
    advice = r"a minibatch of (\d+) instead of 64 would fit"
    with pytest.raises(DeviceMemoryError, match=advice) as caught:
        affine(platform, sequences=64)
    found = re.search(advice, str(caught.value))
    del caught
    gc.collect()
    assert len(cupy.cuda.blocks) == blocks
    assert found is not None
    fits = int(found[1])
    assert 16 <= fits <= 40  # matrices as small as these are mostly padding
    affine(platform, sequences=fits)


def test_nothing_is_left_behind(cupy: StrictCupy, library: Any) -> None:
    """When a trained network goes, so does all memory, without a collection; and its platform."""
    gc.collect()
    gc.disable()
    try:
        platform = CupyPlatform(cupy, library, 1)
        reference = weakref.ref(platform)
        computer = affine(platform, trainable=True, natural_gradient=True)
        del platform
        for run in range(RUNS):
            computer.forward({"input": random((8, 4), run)})
            computer.backward({"output": random((8, 3), run + 100)})
            computer.device_nnet.take_step()
        assert cupy.cuda.blocks
        with cupy.cuda.Device(1):
            cupy.cuda.runtime.deviceSynchronize()
        del computer
        assert not cupy.cuda.blocks
    finally:
        gc.enable()
    gc.collect()
    assert reference() is None
