"""On a CUDA device: the reference cases, random networks, training, streams, tensors, memory.

    pytest tests/test_gpu.py                        # on a CUDA device
    pytest tests/test_gpu.py --numprocesses=4       # with pytest-xdist: one may lose the device
    NNET3_GPU_TESTS=host pytest tests/test_gpu.py   # a rehearsal: the kernels on the processor

Without a device they are skipped, with the reason. Tests that need CuPy's arrays are skipped in the
rehearsal too. With NNET3_GPU_ALLOCATOR=cuda each allocation is one of CUDA's own instead of a part
of CuPy's pool, for tools that watch the bounds of memory. Tests that need the pool are skipped
then.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from chain_reference import chain_case, check_result, parametrize_chain_cases
from example_generator import random_arrays
from judged_cases import case_of_seed
from judging import judge
from nnet3 import Model
from nnet3_compiler import compile_looped
from nnet3_computation import ComputationRequest
from nnet3_descriptors import read_nnet, set_test_mode
from nnet3_runtime_cuda import DeviceError, DeviceMemoryError, DeviceNnet, NnetComputer, RunError
from nnet3_runtime_cuda.cuda import split_products
from nnet3_runtime_cuda.kernels import convolution
from nnet3_training import (
    ChainOptions,
    ChainTraining,
    Trainer,
    TrainerOptions,
    minibatches,
    read_chain_examples,
)
from reference_cases import (
    CHAIN_REFERENCE,
    DIGITS_EXAMPLE,
    ReferenceCase,
    assert_close,
    load_case,
    network,
    parametrize_cases,
)
from reference_programs import (
    check_derivatives,
    has_derivatives,
    optimized,
    parameters_after_steps,
)
from small_networks import request_for
from split_cases import PRODUCTS, Product, factors, off, run

# Whatever versions of CuPy, PyTorch and NumPy a machine with a device has: they may warn.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

REHEARSAL = os.environ.get("NNET3_GPU_TESTS") == "host"
PLAIN_ALLOCATOR = os.environ.get("NNET3_GPU_ALLOCATOR") == "cuda"

NUM_JUDGED_NETWORKS = 300

TOLERANCE = 1e-4
"""Of results in float32, relative to the largest value of an array."""

RUNS = 3
"""The first run of a program makes its calls, the second captures them, the third replays."""

Arrays = Mapping[str, np.ndarray]


@pytest.fixture(scope="module")
def device() -> Any:
    """The device; tests are skipped where there is none."""
    if REHEARSAL:
        from emulated_device import HostPlatform

        return HostPlatform()
    from nnet3_runtime_cuda.cuda.machine import open_platform

    try:
        open_platform("cuda")
    except DeviceError as error:
        pytest.skip(f"no CUDA device: {error}")
    if PLAIN_ALLOCATOR:
        import cupy

        cupy.cuda.set_allocator(None)
    return "cuda"


@pytest.fixture(scope="module")
def cupy(device: Any) -> Any:
    """CuPy, where there is a device."""
    if REHEARSAL:
        pytest.skip("the rehearsal has no CuPy arrays")
    import cupy

    return cupy


@pytest.fixture
def pool(cupy: Any) -> Any:
    """CuPy's pool of memory."""
    if PLAIN_ALLOCATOR:
        pytest.skip("memory is CUDA's own")
    return cupy.get_default_memory_pool()


@pytest.fixture(autouse=True)
def device_survives(device: Any) -> Iterator[None]:
    """Ends the process when a kernel has spoilt the device for it: all later tests would fail.

    The test that did it has been reported by then, and pytest-xdist goes on in another process.
    """
    yield
    if REHEARSAL:
        return
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(1)
        pytest.exit(f"the device is lost for this process: {error}", returncode=1)


@pytest.fixture(scope="module")
def torch(cupy: Any) -> Any:
    """PyTorch, if it is installed for CUDA."""
    with warnings.catch_warnings(action="ignore"):
        module = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not module.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    return module


def affine_case(device: Any) -> tuple[NnetComputer, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A small computation on a device, its inputs, and its outputs on the processor."""
    case = load_case("component/affine")
    nnet, inputs = network(case), case.node_arrays("input")
    here, there = (
        NnetComputer(nnet, optimized(nnet, case.request), device=each) for each in ("cpu", device)
    )
    return there, inputs, here.forward(inputs)


# ---- results ----


@parametrize_cases()
def test_outputs(case: ReferenceCase, device: Any) -> None:
    """Outputs are Kaldi's, in the first run and when they are replayed."""
    nnet = network(case)
    computer = NnetComputer(nnet, optimized(nnet, case.request), device=device)
    for _ in range(1 if case.request.store_component_stats else RUNS):
        outputs = computer.forward(case.node_arrays("input"))
        assert_close(outputs, case.node_arrays("output"), TOLERANCE)


@parametrize_cases(only=has_derivatives)
def test_derivatives(case: ReferenceCase, device: Any) -> None:
    """Derivatives of inputs and parameters are Kaldi's."""
    nnet = network(case)
    computer = NnetComputer(nnet, optimized(nnet, case.request), device=device)
    computer.forward(case.node_arrays("input"))

    check_derivatives(computer, case, TOLERANCE)


@parametrize_cases(only=lambda case: "cnn" in case.name or "convolution" in case.name)
def test_large_convolutions(
    case: ReferenceCase, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are they without patches, as convolutions with many rows and filters are computed."""
    monkeypatch.setattr(convolution, "FEWEST_FILTERS", 1)
    monkeypatch.setattr(convolution, "PATCH_BYTES", 0)
    test_outputs(case, device)
    if has_derivatives(case):
        test_derivatives(case, device)


@parametrize_cases(only=lambda case: "params_after4" in case.arrays)
def test_training_steps(case: ReferenceCase, device: Any) -> None:
    """Four steps along the natural gradient end at Kaldi's parameters, within 1e-3."""
    after = {"parameters": parameters_after_steps(case, device=device)}

    assert_close(after, {"parameters": case.arrays["params_after4"]}, 1e-3)


@pytest.mark.parametrize("first", range(0, NUM_JUDGED_NETWORKS, 10), ids=lambda n: f"from{n}")
def test_judged_networks(first: int, device: Any) -> None:
    """Results are those of the definition, for networks of all kinds, loops among them."""
    for seed in range(first, first + 10):
        verdict = judge(case_of_seed(seed), device=device)
        assert not verdict.problem, f"seed {seed}: {verdict.problem}"


def test_looped_computation(device: Any) -> None:
    """A looped computation goes on from its state, and starts anew after a reset."""
    case = load_case("network/lstmp")
    nnet = set_test_mode(network(case))
    requests = [
        request_for(range(start, end), range(first, last))
        for start, end, first, last in ((-20, 20, 0, 10), (20, 30, 10, 20), (30, 40, 20, 30))
    ]
    computation = compile_looped(nnet, requests)
    given = np.random.default_rng(3).standard_normal((90, nnet.node_dim("input")), np.float32)
    pieces = np.split(given, [40, 50, 60, 70, 80])
    computers = [NnetComputer(nnet, computation, device=each) for each in (device, "cpu")]
    for _ in range(2):
        for piece in pieces:
            found, expected = (each.forward({"input": piece}) for each in computers)
            assert_close(found, expected, TOLERANCE)
        for each in computers:
            each.reset()


def test_runs_repeat_bit_by_bit(device: Any) -> None:
    """Calls made one by one, captured and replayed give the same bits."""
    case = load_case("network/tdnnf-inference")
    nnet = network(case)
    computer = NnetComputer(nnet, optimized(nnet, case.request), device=device)
    first, *others = (computer.forward(case.node_arrays("input")) for _ in range(RUNS + 1))
    for outputs in others:
        for name, array in outputs.items():
            np.testing.assert_array_equal(array, first[name])


def test_models_compute_utterances(device: Any) -> None:
    """A model for speech has the outputs of the processor, for utterances of any length."""
    nnet = read_nnet(DIGITS_EXAMPLE / "final.raw")
    here, there = Model(nnet), Model(nnet, device=device)
    rng = np.random.default_rng(0)
    for frames in (37, 120, 37):
        features = rng.standard_normal((frames, here.input_dim), dtype=np.float32)
        found, expected = (each.compute(features) for each in (there, here))
        assert_close({"output": found}, {"output": expected}, TOLERANCE)


# ---- arrays on the device, streams ----


def test_cupy_in_cupy_out(cupy: Any, device: Any) -> None:
    """Inputs on the device give outputs on the device, on the stream that is current."""
    computer, inputs, expected = affine_case(device)
    for _ in range(RUNS):
        with cupy.cuda.Stream(non_blocking=True):
            given = {name: cupy.asarray(array) for name, array in inputs.items()}
            outputs = computer.forward(given)
            assert all(isinstance(array, cupy.ndarray) for array in outputs.values())
            found = {name: array.get() for name, array in outputs.items()}
        assert_close(found, expected, TOLERANCE)


def test_tensors_in_and_out(torch: Any, device: Any) -> None:
    """PyTorch tensors go in by DLPack; outputs become tensors without a copy."""
    computer, inputs, expected = affine_case(device)
    with torch.cuda.stream(torch.cuda.Stream()):
        tensors = {name: torch.from_numpy(array).cuda() for name, array in inputs.items()}
        outputs = computer.forward(tensors)
        taken = {name: torch.from_dlpack(array) for name, array in outputs.items()}
        for name, array in outputs.items():
            assert taken[name].data_ptr() == array.data.ptr
        found = {name: tensor.cpu().numpy() for name, tensor in taken.items()}
    assert_close(found, expected, TOLERANCE)


def test_tensors_that_require_gradients(torch: Any, device: Any) -> None:
    """PyTorch does not give such a tensor away; its reason is passed on."""
    computer, inputs, _ = affine_case(device)
    tensors = {
        name: torch.from_numpy(array).cuda().requires_grad_() for name, array in inputs.items()
    }
    with pytest.raises(RunError, match="gradient"):
        computer.forward(tensors)


BUSY = """
extern "C" __global__ void busy(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {}
}
"""


def test_step_waits_for_nothing(cupy: Any, device: Any) -> None:
    """A training step is queued while the device is still busy with earlier work."""
    case = load_case("network/tdnnf-inference")
    nnet = read_nnet(case.network_path)
    request = training_request(case.request)
    trained = DeviceNnet(nnet, device=device, trainable=True)
    computer = NnetComputer(trained, optimized(nnet, request))
    inputs = {k: cupy.asarray(v) for k, v in random_arrays(nnet, request.inputs).items()}
    derivatives = {k: cupy.asarray(v) for k, v in random_arrays(nnet, request.outputs).items()}

    def step() -> None:
        computer.forward(inputs)
        computer.backward(derivatives)
        trained.take_step()

    busy = cupy.RawKernel(BUSY, "busy")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(RUNS):
            step()
        stream.synchronize()
        busy((1,), (1,), (np.int64(5_000_000_000),))  # some seconds
        step()
        assert not stream.done
        stream.synchronize()


@pytest.mark.parametrize("is_pinned", [False, True])
def test_inputs_may_be_changed_after_a_call(cupy: Any, device: Any, is_pinned: bool) -> None:
    """Arrays of the host are read before a call returns, though the device is still busy."""
    import cupyx

    computer, inputs, expected = affine_case(device)
    given = {}
    for name, array in inputs.items():
        given[name] = cupyx.empty_pinned(array.shape, np.float32) if is_pinned else array.copy()
    busy = cupy.RawKernel(BUSY, "busy")
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(RUNS):
            for name, array in inputs.items():
                given[name][...] = array
            busy((1,), (1,), (np.int64(500_000_000),))
            outputs = computer.forward(given, on_device=True)
            for array in given.values():
                array.fill(np.nan)
            found = {name: array.get() for name, array in outputs.items()}
            assert_close(found, expected, TOLERANCE)


def training_request(request: ComputationRequest) -> ComputationRequest:
    """The same with derivatives."""
    return attrs.evolve(
        request,
        outputs=[attrs.evolve(io, has_deriv=True) for io in request.outputs],
        need_model_derivative=True,
        store_component_stats=True,
    )


# ---- memory, precision, other devices ----


def test_memory_limit(pool: Any, device: Any) -> None:
    """CuPy's limit is respected; the error names what would fit, and nothing stays allocated."""
    case = load_case("network/tdnnf-inference")
    nnet = network(case)
    computation = optimized(nnet, request_for(range(-40, 400), range(300), 64))
    trial = NnetComputer(nnet, computation, device=device)
    needed = trial.memory_bytes
    del trial
    pool.free_all_blocks()
    used = pool.used_bytes()
    pool.set_limit(size=used + needed // 2)
    try:
        with pytest.raises(DeviceMemoryError, match=r"a minibatch of \d+ instead of 64 would fit"):
            NnetComputer(nnet, computation, device=device)
    finally:
        pool.set_limit(size=0)
    assert pool.used_bytes() <= used + needed // 4


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("tf32", 5e-3), ("bf16", 5e-2), ("fp32x3", TOLERANCE)]
)
def test_precision(
    cupy: Any, device: Any, precision: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lower precisions are near Kaldi's values; products of split factors are as those of fp32."""
    for name, value in (("LEAST_FLOP", 0), ("LEAST_TERMS", 1), ("MOST_PADDING", np.inf)):
        monkeypatch.setattr(split_products, name, value)
    case = load_case("network/tdnnf-inference")
    nnet = network(case)
    computation = optimized(nnet, case.request)
    rough = NnetComputer(DeviceNnet(nnet, device=device, precision=precision), computation)
    outputs = rough.forward(case.node_arrays("input"))
    assert_close(outputs, case.node_arrays("output"), tolerance)


LARGE_PRODUCTS = {
    "forward": Product(sizes=(3200, 320, 1536), transposed=(False, True), bias=True),
    "backward": Product(sizes=(3200, 1536, 320)),
    "gradient": Product(sizes=(320, 1536, 13568), transposed=(True, False), parts=11),
    "gradient, narrow copies": Product(sizes=(321, 1537, 3203), transposed=(True, False), parts=4),
}


@pytest.mark.parametrize("name", [*PRODUCTS, *LARGE_PRODUCTS])
def test_split_products(device: Any, name: str) -> None:
    """Products on tensor cores are as exact as those of float32, in all forms."""
    if REHEARSAL and name in LARGE_PRODUCTS:
        pytest.skip("the processor would take an hour")
    from nnet3_runtime_cuda.cuda.machine import open_platform

    product = (PRODUCTS | LARGE_PRODUCTS)[name]
    platform = device if REHEARSAL else open_platform(device, "fp32x3")
    given = factors(product, np.random.default_rng(0))
    assert off(*run(product, *given, platform)) < 2e-6


def test_second_device(cupy: Any) -> None:
    """A network can be on another device than the current one."""
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is only one CUDA device")
    computer, inputs, expected = affine_case("cuda:1")
    assert_close(computer.forward(inputs), expected, TOLERANCE)


def test_networks_give_their_memory_back(pool: Any, device: Any) -> None:
    """When a computer goes, so does its memory."""
    gc.collect()
    used = pool.used_bytes()
    for _ in range(3):
        computer, inputs, _ = affine_case(device)
        computer.forward(inputs)
        del computer
    assert pool.used_bytes() <= used


# ---- the objective of chain models ----


@parametrize_chain_cases
def test_chain_objective(cupy: Any, folder: Path) -> None:
    """Objective and derivatives are Kaldi's, and the derivatives stay on the device."""
    case, chain, supervision, values = chain_case(folder)
    output = cupy.asarray(values)
    for _ in range(RUNS):
        result = chain.compute(supervision, output)
        assert isinstance(result.derivative, cupy.ndarray)
        check_result(result, case, folder, TOLERANCE, TOLERANCE, cupy.asnumpy)


def test_chain_training(device: Any) -> None:
    """Minibatches of the digits system have the objectives that they have on the processor."""
    folder = CHAIN_REFERENCE / "digits"
    nnet = read_nnet(folder / "initial.raw")
    options = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.00005, xent_regularize=0.1)
    here, there = (
        Trainer(
            nnet,
            TrainerOptions(learning_rate=0.002),
            each,
            objective=ChainTraining(nnet, folder / "den.fst", options),
        )
        for each in ("cpu", device)
    )
    for example in minibatches(read_chain_examples(folder / "cegs8.ark"), 4):
        wanted, found = here.train_minibatch(example), there.train_minibatch(example)
        for name, each in wanted.items():
            assert found[name].total == pytest.approx(each.total, rel=1e-3)
