"""The tools that say whether networks can run on a CUDA device."""

from __future__ import annotations

import functools
import sys
from unittest.mock import Mock

import nnet3
import numpy as np
import pytest
from nnet3 import load
from nnet3_runtime_cuda import DeviceError
from tool_runs import run_tool

cuda_compiled, cuda_gpu_available = (
    functools.partial(run_tool, name) for name in ("cuda-compiled", "cuda-gpu-available")
)


def test_cuda_without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the libraries both programs end with 1; the second says what to install."""
    monkeypatch.setitem(sys.modules, "cupy", None)

    assert cuda_compiled().returncode == 1
    available = cuda_gpu_available()
    assert available.returncode == 1
    assert "### CUDA WAS NOT COMPILED IN! ###\ndevice 'cuda' needs CuPy" in available.stderr


def test_cuda_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the libraries alone the first program ends with 0, the second with 255 and a reason."""
    monkeypatch.setattr("nnet3_runtime_cuda.device.check_cuda_libraries", lambda: None)
    no_device = Mock(side_effect=DeviceError("there is no NVIDIA driver here"))
    monkeypatch.setattr("nnet3_runtime_cuda.device.machine_for", no_device)

    assert cuda_compiled().returncode == 0
    available = cuda_gpu_available()
    assert available.returncode == 255
    assert "there is no NVIDIA driver here\n" in available.stderr
    assert "### WE DID NOT GET A CUDA GPU!!! ###" in available.stderr


@pytest.mark.parametrize(("error", "status"), [(0.0, 0), (1e-3, 255), (np.nan, 255)])
def test_cuda_that_computes(monkeypatch: pytest.MonkeyPatch, error: float, status: int) -> None:
    """A device passes if it gives the processor's softmax."""

    class OnDevice:
        def compute(self, values: np.ndarray) -> np.ndarray:
            powers = np.exp(values)
            return powers / powers.sum(axis=1, keepdims=True) + error

    def loaded(nnet: object, device: str) -> object:
        return OnDevice() if device == "cuda" else load(nnet)

    monkeypatch.setattr("nnet3_runtime_cuda.device.check_cuda_libraries", lambda: None)
    monkeypatch.setattr("nnet3_runtime_cuda.device.machine_for", lambda device: None)
    monkeypatch.setattr(nnet3, "load", loaded)

    done = cuda_gpu_available()

    assert done.returncode == status
    last = "### Test OK!" if status == 0 else "### The CUDA setup is wrong!"
    assert done.stderr.splitlines()[-1] == last
