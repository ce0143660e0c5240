"""The path for devices, run on the processor: kernel sources built for the host, or compiled only.

Nothing here needs a GPU. The kernels of a program, their operands and their order are the same on a
GPU and on the host platform, where a C++ compiler builds the kernels' sources.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import attrs
import numpy as np
import nvrtc
import pytest
from emulated_device import DryRun, HostPlatform, compiler
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet, vectorize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cuda import fusion
from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix
from nnet3_runtime_cuda.cuda.split_products import source_of, tiling_of
from other_processes import printed_by
from reference_cases import (
    ReferenceCase,
    assert_close,
    load_case,
    network,
    parametrize_cases,
)
from reference_programs import check_training_steps, has_derivatives, optimized

TOLERANCE = 1e-4

nvcc = shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


def program(case: ReferenceCase) -> tuple[Nnet, NnetComputation]:
    """The network of a case and its optimized computation."""
    nnet = network(case)
    return nnet, optimized(nnet, case.request)


def results(case: ReferenceCase, device: str | HostPlatform) -> dict[str, np.ndarray]:
    """Outputs, derivatives, gradient and statistics that a device gives for a case."""
    computer = NnetComputer(*program(case), device)
    outputs = computer.forward(case.node_arrays("input"))
    found = {f"output/{name}": array for name, array in outputs.items()}
    if has_derivatives(case):
        derivatives = computer.backward(case.node_arrays("output_deriv"))
        found |= {f"input_deriv/{name}": array for name, array in derivatives.items()}
    if case.request.need_model_derivative:
        found["gradient"] = vectorize(computer.gradient)
    for number, component in enumerate(computer.nnet.components):
        for field in ("value_avg", "deriv_avg", "oderiv_rms", "stats_mean", "stats_var"):
            average = getattr(component, field, np.zeros(0))
            found[f"{field} of {number}"] = np.asarray(average, dtype=np.float32)
    return {name: array for name, array in found.items() if array.size}


@needs_compiler
@parametrize_cases()
def test_values(case: ReferenceCase) -> None:
    """Outputs, derivatives, gradient and statistics agree with the NumPy backend's."""
    assert_close(results(case, HostPlatform()), results(case, "cpu"), TOLERANCE)


@needs_compiler
@parametrize_cases(only=lambda case: "params_after4" in case.arrays)
def test_training_steps(case: ReferenceCase) -> None:
    """Four steps along the natural gradient, which never leaves the device, end at Kaldi's."""
    check_training_steps(case, device=HostPlatform())


STRICT_CASES = ("network/lstmp", "component/tdnn", "component/restricted-attention")


@needs_compiler
@parametrize_cases(
    only=lambda case: bool(os.environ.get("STRICT_ALL")) or case.name in STRICT_CASES
)
def test_kernels_do_not_race(case: ReferenceCase) -> None:
    """No race or bad access in three training steps (or runs), none of which needs leavings.

    Estimates of the natural gradient begin in the first step, stay fixed in the second, and move in
    the third. With STRICT_ALL in the environment all cases are watched, which takes some minutes.
    """
    nnet, computation = program(case)
    trains = case.request.need_model_derivative
    platform = HostPlatform(strict=True)
    network = DeviceNnet(nnet, device=platform, trainable=trains, natural_gradient=trains)
    computer = NnetComputer(network, computation)
    for is_fixed in (False, True, False):
        network.freeze_natural_gradient(is_fixed)
        computer.forward(case.node_arrays("input"))
        if has_derivatives(case):
            computer.backward(case.node_arrays("output_deriv"))
        if trains:
            network.take_step()
        platform.forget()


@needs_compiler
@parametrize_cases(only=lambda case: case.name in STRICT_CASES)
def test_values_without_needless_stores(
    case: ReferenceCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving out stores of overwritten values changes no result, even for small matrices."""
    monkeypatch.setattr(fusion, "SMALLEST_STORE", 1)
    assert_close(results(case, HostPlatform()), results(case, "cpu"), TOLERANCE)


def sources(case: ReferenceCase) -> list[str]:
    """The modules of a case, trained if it can be."""
    nnet, computation = program(case)
    platform, trains = DryRun(), case.request.need_model_derivative
    network = DeviceNnet(nnet, device=platform, trainable=trains, natural_gradient=trains)
    NnetComputer(network, computation)
    return platform.sources


@pytest.fixture(scope="module")
def compiled() -> set[tuple[str, str]]:
    """The architectures and texts of the kernels that were compiled, each after its prelude."""
    return set()


@pytest.mark.skipif(nvrtc.installed() is None, reason="the wheel nvidia-cuda-nvrtc is not there")
@parametrize_cases()
def test_sources_compile(case: ReferenceCase, compiled: set[tuple[str, str]]) -> None:
    """The kernels compile for a device: a third of the cases for each architecture.

    With NVRTC_ALL in the environment all are compiled for all three. A kernel that another case
    has compiled for the same architecture is left out of the module.
    """
    compiler_of_cuda = nvrtc.installed()
    assert compiler_of_cuda is not None
    chosen = [nvrtc.ARCHITECTURES[sum(case.name.encode()) % 3]]
    for architecture in nvrtc.ARCHITECTURES if os.environ.get("NVRTC_ALL") else chosen:
        for source in sources(case):
            prelude, *kernels = re.split(r'(?=extern "C" __global__)', source)
            new = [each for each in kernels if (architecture, prelude + each) not in compiled]
            if new:
                assert compiler_of_cuda.errors(prelude + "".join(new), architecture) == ""
            compiled.update((architecture, prelude + each) for each in new)


@pytest.mark.skipif(nvrtc.installed() is None, reason="the wheel nvidia-cuda-nvrtc is not there")
@pytest.mark.parametrize("architecture", [*nvrtc.ARCHITECTURES, "sm_120"])
@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize("transposed", [False, True])
def test_split_products_compile(architecture: str, transposed: bool, gap: int) -> None:
    """Products on tensor cores compile, with registers for two blocks, none of them in memory."""
    a, b, out = (
        Matrix(address=256, stride=64 + gap, transposed=each) for each in (transposed, False, False)
    )
    gemm = Gemm(rows=64, columns=64, inner=64, a=a, b=b, out=out, beta=1.0, bias=256, relu=True)
    plan = attrs.evolve(tiling_of(64, 64, 64, 1, 132, 0), parts=1 + gap)
    compiler_of_cuda = nvrtc.installed()
    assert compiler_of_cuda is not None
    failed, log = compiler_of_cuda.compiled(
        source_of(gemm, plan), architecture, "--ptxas-options=-v"
    )
    assert not failed, log
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    assert spilled == ["0"] * 4
    assert max(map(int, re.findall(r"Used (\d+) registers", log))) <= 128


@pytest.mark.skipif(nvcc is None, reason="there is no nvcc")
@pytest.mark.parametrize("name", ["network/lstmp"])
def test_sources_compile_with_nvcc(name: str, tmp_path: Path) -> None:
    """The compiler of the toolkit takes the modules too."""
    assert nvcc is not None
    for number, source in enumerate(sources(load_case(name))):
        path = tmp_path / f"{number}.cu"
        path.write_text(source)
        command = [nvcc, "-std=c++17", "-arch=sm_90", "--cubin", "--output-file", os.devnull]
        printed_by([*command, path])


@needs_compiler
def test_memory_is_limited() -> None:
    """A device without enough memory is an error that says what is needed and what would fit."""
    case = load_case("component/affine")
    message = r"needs [\d,]+ bytes of memory on host.* free; .* would fit"
    with pytest.raises(ValueError, match=message):
        results(case, HostPlatform(memory_limit=1500))
