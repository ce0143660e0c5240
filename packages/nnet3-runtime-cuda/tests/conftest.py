"""Makes the helpers beside the tests importable, and defines what they share."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ["NNET3_CACHE_DIR"] = ""  # tests neither read nor leave results in anybody's home
if settings.default.deadline:  # in a source archive, which lacks the repository's conftest.py
    settings.register_profile("nnet3", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("nnet3")


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A stand-in for libcublasLt that computes on the processor."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler (g++ or c++) to build the stand-in with")
    target = tmp_path_factory.mktemp("cublaslt") / "libstandin.so"
    source = HERE / "cublaslt_stand_in.cpp"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", target, source], check=True)
    library = ctypes.CDLL(str(target))
    library.stand_in_last_stream.restype = ctypes.c_uint64
    return library


@pytest.fixture
def cupy(request: pytest.FixtureRequest) -> Any:
    """A CuPy with two devices, and with the kernels of the module of tests, if it has some."""
    from strict_cupy import StrictCupy

    return StrictCupy(getattr(request.module, "kernels", lambda source: {}))


@pytest.fixture
def library(stand_in: ctypes.CDLL, cupy: Any) -> Any:
    """A libcublasLt that respects streams."""
    from strict_cupy import QueuedLibrary

    return QueuedLibrary(stand_in, cupy.cuda)


@pytest.fixture
def platform(cupy: Any, library: Any) -> Any:
    """The second device."""
    from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform

    return CupyPlatform(cupy, library, 1)
