"""The network passes for inference, in their order."""

from nnet3_descriptors.editing import collapse, split_affine, time_delay
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
    return time_delay.affine_to_tdnn(split_affine.split_affine_maps(collapse.collapse_model(nnet)))
