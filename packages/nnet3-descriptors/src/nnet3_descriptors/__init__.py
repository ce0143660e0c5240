"""Read, describe, edit and write Kaldi nnet3 networks in Python."""

from nnet3_descriptors.descriptors import Descriptor, parse_descriptor
from nnet3_descriptors.errors import (
    ConfigError,
    DescriptorSyntaxError,
    ModelFileError,
    NetworkError,
    Nnet3Error,
    SerializationError,
    SourceError,
)

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Descriptor",
    "DescriptorSyntaxError",
    "ModelFileError",
    "NetworkError",
    "Nnet3Error",
    "SerializationError",
    "SourceError",
    "parse_descriptor",
]
