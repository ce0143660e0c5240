"""The network passes for inference, in their order."""

from nnet3_descriptors.editing.collapse import collapse_model
from nnet3_descriptors.editing.split_affine import split_affine_maps
from nnet3_descriptors.editing.time_delay import affine_to_tdnn
from nnet3_descriptors.nnet import Nnet


def for_inference(nnet: Nnet) -> Nnet:
    """Returns a network that computes the same in less time, except for rounding.

    Components are folded into others (`collapse_model`), affine maps of loops are split
    (`split_affine_maps`), and those that splice become TDNN components (`affine_to_tdnn`).

    Args:
        nnet: The network, in test mode (see `set_test_mode`).

    Raises:
        NetworkError: A component that is to be folded is not in test mode.
    """
    return affine_to_tdnn(split_affine_maps(collapse_model(nnet)))
