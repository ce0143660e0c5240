"""The network of a model, with the output that is wanted."""

from __future__ import annotations

from typing import NamedTuple

from nnet3_descriptors import Nnet, set_test_mode
from nnet3_runtime_cuda import RunError

from nnet3.chunk_work import OUTPUT
from nnet3.output_scores import with_output
from nnet3.stand_in_statistics import with_stand_in_statistics


class Prepared(NamedTuple):
    """A network in test mode.

    Attributes:
        whole: All of it.
        chosen: With one output, named 'output'.
        untrained: The batch-norm components without statistics; they have arbitrary ones.
    """

    whole: Nnet
    chosen: Nnet
    untrained: tuple[str, ...]

    @classmethod
    def of(cls, nnet: Nnet, output: str) -> Prepared:
        """Prepares a network.

        Args:
            nnet: The network.
            output: The node whose values are the outputs.

        Raises:
            RunError: there is no such node, or this is no name.
        """
        check_name(output)
        nnet, untrained = with_stand_in_statistics(nnet)
        whole = set_test_mode(nnet)
        if output == OUTPUT:
            return cls(whole, whole, untrained)
        return cls(whole, with_output(whole, output), untrained)


def check_name(output: object) -> str:
    """The name of an output.

    Raises:
        RunError: it is no text.
    """
    if not isinstance(output, str):
        raise RunError(f"output: expected the name of a node, found {type(output).__name__}")
    return output


def only_output(nnet: Nnet) -> Nnet:
    """The network without the outputs, and what only they need, that are not named 'output'."""
    if len(nnet.output_nodes) == 1:
        return nnet
    return with_output(nnet, OUTPUT)
