"""Errors in themselves; what raises them is tested with what raises them."""

import pickle

import pytest
from nnet3_descriptors import (
    ConfigError,
    DescriptorSyntaxError,
    ModelFileError,
    NetworkError,
    Nnet3Error,
    SerializationError,
)


@pytest.mark.parametrize(
    "error",
    [
        NetworkError("the input is missing", node="output"),
        DescriptorSyntaxError("expected a descriptor", "a, )", (3, 4)),
        ConfigError("'dim' is missing", "input-node name=a\n", (0, 17)),
        SerializationError("expected version 1"),
        ModelFileError(
            "unexpected token",
            path="final.mdl",
            offset=12,
            component="tdnn1",
            expected="'<LinearParams>'",
            found="'<BiasParams>'",
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_pass_between_processes(error: Nnet3Error) -> None:
    """An error from a worker process arrives as it was: same class, message and attributes."""
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301, bytes of our own

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
