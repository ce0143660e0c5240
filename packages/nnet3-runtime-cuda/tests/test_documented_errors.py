"""Public functions raise the errors that their docstrings name."""

from __future__ import annotations

import inspect
import io

import pytest
from computations import compiled
from nnet3 import Model, load
from nnet3_descriptors import Nnet, write_nnet
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
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
    computation = compiled(nnet(), range(3), sequences=1, training=False)
    return NnetComputer(network, computation, **options)


@pytest.mark.parametrize(
    ("documented", "errors"),
    [
        (load, "OptionError RunError DeviceError"),
        (Model.__init__, "OptionError ContextError RunError"),
        (Model.compute, "RunError UnsupportedComponentError"),
        (Model.xvector, "RunError"),
        (DeviceNnet.__init__, "DeviceError RunError TrainingError"),
        (NnetComputer, "DeviceError CheckError RunError UnsupportedComponentError"),
        (NnetComputer.gradient, "RunError"),
    ],
)
def test_errors(documented: object, errors: str) -> None:
    """A docstring names the errors that errors.txt has for wrong arguments."""
    named = inspect.getdoc(documented).partition("Raises:")[2]

    assert [error for error in errors.split() if error not in named] == []
