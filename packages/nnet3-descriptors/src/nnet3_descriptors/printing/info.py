"""A network as text for people and scripts, as nnet3-info prints it."""

from __future__ import annotations

from collections.abc import Iterator

from nnet3_descriptors.context import compute_context, is_simple
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.network_structure import NetworkStructure
from nnet3_descriptors.printing.config_lines import node_config_lines


def format_info(nnet: NetworkStructure) -> str:
    """Returns the lines of nnet3-info, each with its line end.

    The context is left out where it is not defined, for networks with other inputs than "input"
    and "ivector".
    """
    return "".join(f"{line}\n" for line in _lines(nnet))


def _lines(nnet: NetworkStructure) -> Iterator[str]:
    yield from _context_lines(nnet)
    yield f"num-parameters: {nnet.num_parameters}"
    yield f"modulus: {nnet.modulus}"
    yield from node_config_lines(nnet, with_dims=True)
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        yield f"component name={name} type={component.info()}"


def _context_lines(nnet: NetworkStructure) -> Iterator[str]:
    if not is_simple(nnet):
        return
    try:
        left, right = compute_context(nnet)
    except NetworkError:  # no output can be computed from frames of input alone
        return
    yield f"left-context: {left}"
    yield f"right-context: {right}"
