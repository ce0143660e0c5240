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

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_descriptors.components import Component as Component
    from nnet3_descriptors.components import ComponentProperties as ComponentProperties
    from nnet3_descriptors.components import component_class as component_class
    from nnet3_descriptors.components import component_types as component_types
    from nnet3_descriptors.config_reader import parse_config as parse_config
    from nnet3_descriptors.descriptors import Descriptor as Descriptor
    from nnet3_descriptors.descriptors import parse_descriptor as parse_descriptor
    from nnet3_descriptors.errors import ConfigError as ConfigError
    from nnet3_descriptors.errors import DescriptorSyntaxError as DescriptorSyntaxError
    from nnet3_descriptors.errors import FileError as FileError
    from nnet3_descriptors.errors import LimitError as LimitError
    from nnet3_descriptors.errors import ModelFileError as ModelFileError
    from nnet3_descriptors.errors import NetworkError as NetworkError
    from nnet3_descriptors.errors import Nnet3Error as Nnet3Error
    from nnet3_descriptors.errors import SerializationError as SerializationError
    from nnet3_descriptors.errors import SourceError as SourceError
    from nnet3_descriptors.errors import escaped as escaped
    from nnet3_descriptors.limits import Limits as Limits
    from nnet3_descriptors.limits import check_limit as check_limit
    from nnet3_descriptors.limits import current_limits as current_limits
    from nnet3_descriptors.limits import use_limits as use_limits
    from nnet3_descriptors.model_files.network import AcousticModel as AcousticModel
    from nnet3_descriptors.model_files.network import read_acoustic_model as read_acoustic_model
    from nnet3_descriptors.model_files.network import read_model as read_model
    from nnet3_descriptors.model_files.network import read_nnet as read_nnet
    from nnet3_descriptors.model_files.network import write_acoustic_model as write_acoustic_model
    from nnet3_descriptors.model_files.network import write_nnet as write_nnet
    from nnet3_descriptors.network_structure import INPUT_SUFFIX as INPUT_SUFFIX
    from nnet3_descriptors.network_structure import ComponentInputNode as ComponentInputNode
    from nnet3_descriptors.network_structure import ComponentNode as ComponentNode
    from nnet3_descriptors.network_structure import DimRangeNode as DimRangeNode
    from nnet3_descriptors.network_structure import InputNode as InputNode
    from nnet3_descriptors.network_structure import Node as Node
    from nnet3_descriptors.network_structure import OutputNode as OutputNode
    from nnet3_descriptors.nnet import Nnet as Nnet
    from nnet3_descriptors.nnet import set_test_mode as set_test_mode
    from nnet3_descriptors.nnet import unvectorize as unvectorize
    from nnet3_descriptors.nnet import vectorize as vectorize
    from nnet3_descriptors.printing import node_config_lines as node_config_lines
else:
    __getattr__, __dir__ = on_first_use(__name__)
