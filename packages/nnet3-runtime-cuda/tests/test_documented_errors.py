"""Public functions raise the errors that their docstrings name."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable

import numpy as np
import pytest
from computations import request
from nnet3 import Model, load
from nnet3_compiler import compile_computation
from nnet3_descriptors import Nnet, write_nnet
from nnet3_descriptors.components import AffineComponent
from nnet3_runtime_cuda import (
    DeviceNnet,
    NnetComputer,
    RunError,
    UnsupportedComponentError,
)
from nnet3_runtime_cuda.kernels import kernel_class, registry
from small_networks import network, stacked

ANOTHER = """
input-node name=another dim=4
component-node name=d component=c input=another
output-node name=more input=d
"""
OTHER = "input-node name=i dim=4\noutput-node name=o input=i"


def nnet(line: str = "", *, descriptor: str = "input", more: str = "") -> Nnet:
    """An affine map on a descriptor, with further fields and further nodes."""
    text = stacked(4, f"c Affine input-dim=4 output-dim=3 {line}", splice=descriptor)
    return network(text + more)


def file() -> io.BytesIO:
    """A file with the network."""
    written = io.BytesIO()
    write_nnet(nnet(), written)
    return io.BytesIO(written.getvalue())


def run(network: Nnet, **options: object) -> NnetComputer:
    """A computer for three frames of a network."""
    frames = request(range(3), range(3), sequences=1, training=False)
    computation = compile_computation(nnet(), frames)
    return NnetComputer(network, computation, **options)


@pytest.mark.parametrize(
    ("documented", "errors"),
    [
        (load, "OptionError RunError DeviceError"),
        (Model.__init__, "OptionError ContextError RunError"),
        (Model.compute, "RunError"),
        (Model.xvector, "RunError"),
        (DeviceNnet.__init__, "DeviceError TrainingError"),
        (NnetComputer, "DeviceError CheckError"),
        (NnetComputer.gradient, "RunError"),
    ],
)
def test_errors(documented: object, errors: str) -> None:
    """A docstring names the errors that errors.txt has for wrong arguments."""
    named = inspect.getdoc(documented).partition("Raises:")[2]

    assert [error for error in errors.split() if error not in named] == []


@pytest.mark.parametrize(
    ("documented", "call"),
    [
        (load, lambda: load(file())),
        (Model.__init__, lambda: Model(nnet())),
        (DeviceNnet.__init__, lambda: DeviceNnet(nnet())),
        (NnetComputer, lambda: run(nnet())),
    ],
)
def test_environment(
    documented: object, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every function that puts a network on a device names the error of the environment."""
    monkeypatch.setenv("NNET3_TILES", "foo")

    assert "RunError" in inspect.getdoc(documented)
    with pytest.raises(RunError, match="NNET3_TILES"):
        call()


@pytest.mark.parametrize(
    ("documented", "call"),
    [
        (Model.compute, lambda: Model(nnet()).compute(np.ones((3, 4)))),
        (NnetComputer, lambda: run(nnet())),
    ],
)
def test_components_without_arithmetic(
    documented: object, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for an unsupported component appears where it would be computed."""
    kernel_class(nnet().components[0])  # registers the kernel
    monkeypatch.delitem(registry._kernels, AffineComponent)
    Model(nnet())

    assert "UnsupportedComponentError" in inspect.getdoc(documented)
    with pytest.raises(UnsupportedComponentError, match="component 'c' has the type"):
        call()
