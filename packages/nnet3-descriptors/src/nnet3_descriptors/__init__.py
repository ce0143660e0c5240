"""Read, describe, edit and write Kaldi nnet3 networks in Python.

    from nnet3_descriptors import read_nnet

    nnet = read_nnet("final.mdl")
    nnet.output_nodes                                    # structure as data
    nnet.state_dict()["tdnn1.affine.linear_params"]      # parameters as arrays
    print(nnet.info())

A network is a frozen value (`Nnet`); functions that change it return a new one.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_descriptors.components import (
        Component,
        ComponentProperties,
        component_class,
        component_types,
    )
    from nnet3_descriptors.config_reader import parse_config
    from nnet3_descriptors.descriptors import Descriptor, parse_descriptor
    from nnet3_descriptors.errors import (
        ConfigError,
        DescriptorSyntaxError,
        FileError,
        LimitError,
        ModelFileError,
        NetworkError,
        Nnet3Error,
        SerializationError,
        SourceError,
        escaped,
    )
    from nnet3_descriptors.limits import Limits, check_limit, current_limits, use_limits
    from nnet3_descriptors.model_files.network import (
        AcousticModel,
        read_acoustic_model,
        read_model,
        read_nnet,
        write_acoustic_model,
        write_nnet,
    )
    from nnet3_descriptors.nnet import Nnet
    from nnet3_descriptors.nodes import (
        INPUT_SUFFIX,
        ComponentInputNode,
        ComponentNode,
        DimRangeNode,
        InputNode,
        Node,
        OutputNode,
    )
    from nnet3_descriptors.parameters import set_test_mode, unvectorize, vectorize
    from nnet3_descriptors.printing.config_lines import node_config_lines

__version__ = "0.2.0"

__all__ = [
    "INPUT_SUFFIX",
    "AcousticModel",
    "Component",
    "ComponentInputNode",
    "ComponentNode",
    "ComponentProperties",
    "ConfigError",
    "Descriptor",
    "DescriptorSyntaxError",
    "DimRangeNode",
    "FileError",
    "InputNode",
    "LimitError",
    "Limits",
    "ModelFileError",
    "NetworkError",
    "Nnet",
    "Nnet3Error",
    "Node",
    "OutputNode",
    "SerializationError",
    "SourceError",
    "check_limit",
    "component_class",
    "component_types",
    "current_limits",
    "escaped",
    "node_config_lines",
    "parse_config",
    "parse_descriptor",
    "read_acoustic_model",
    "read_model",
    "read_nnet",
    "set_test_mode",
    "unvectorize",
    "use_limits",
    "vectorize",
    "write_acoustic_model",
    "write_nnet",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_descriptors.components": (
                "Component",
                "ComponentProperties",
                "component_class",
                "component_types",
            ),
            "nnet3_descriptors.config_reader": ("parse_config",),
            "nnet3_descriptors.printing.config_lines": ("node_config_lines",),
            "nnet3_descriptors.descriptors": (
                "Descriptor",
                "parse_descriptor",
            ),
            "nnet3_descriptors.errors": (
                "ConfigError",
                "DescriptorSyntaxError",
                "FileError",
                "LimitError",
                "ModelFileError",
                "NetworkError",
                "Nnet3Error",
                "SerializationError",
                "SourceError",
                "escaped",
            ),
            "nnet3_descriptors.limits": (
                "Limits",
                "check_limit",
                "current_limits",
                "use_limits",
            ),
            "nnet3_descriptors.model_files.network": (
                "AcousticModel",
                "read_acoustic_model",
                "read_model",
                "read_nnet",
                "write_acoustic_model",
                "write_nnet",
            ),
            "nnet3_descriptors.nnet": ("Nnet",),
            "nnet3_descriptors.nodes": (
                "INPUT_SUFFIX",
                "ComponentInputNode",
                "ComponentNode",
                "DimRangeNode",
                "InputNode",
                "Node",
                "OutputNode",
            ),
            "nnet3_descriptors.parameters": (
                "set_test_mode",
                "unvectorize",
                "vectorize",
            ),
        },
    )
