"""A network as text for people and scripts, as nnet3-info prints it."""

from __future__ import annotations

from collections.abc import Iterator

from nnet3_descriptors.network_structure import NetworkStructure
from nnet3_descriptors.printing.config_lines import node_config_lines


def format_info(nnet: NetworkStructure, context: tuple[int, int] | None) -> str:
    """Returns the lines of nnet3-info, each with its line end.

    Args:
        nnet: The network.
        context: Its left and right context in frames; None leaves them out.
    """
    return "".join(f"{line}\n" for line in _lines(nnet, context))


def _lines(nnet: NetworkStructure, context: tuple[int, int] | None) -> Iterator[str]:
    if context is not None:
        yield f"left-context: {context[0]}"
        yield f"right-context: {context[1]}"
    yield f"num-parameters: {nnet.num_parameters}"
    yield f"modulus: {nnet.modulus}"
    yield from node_config_lines(nnet, with_dims=True)
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        yield f"component name={name} type={component.info()}"
