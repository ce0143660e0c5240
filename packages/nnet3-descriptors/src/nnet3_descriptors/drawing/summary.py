"""The summary of a network that a notebook shows."""

from __future__ import annotations

from html import escape

from nnet3_descriptors.context import compute_context, is_simple
from nnet3_descriptors.drawing.layers import layers_of
from nnet3_descriptors.drawing.svg import network_svg
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.network_structure import NetworkStructure


def network_html(nnet: NetworkStructure) -> str:
    """Returns inputs, outputs, size, context and the drawing, as an element of a page."""
    lines = [
        *(f"input <b>{escape(node.name)}</b>: {node.dim} columns" for node in nnet.input_nodes),
        *(
            f"output <b>{escape(node.name)}</b>: {nnet.node_dim(node.name)} columns"
            for node in nnet.output_nodes
        ),
        f"{nnet.num_parameters:,} parameters in {len(nnet.components)} components",
    ]
    context = context_of(nnet)
    if context is not None:
        lines.append(f"context: {context[0]} frames before, {context[1]} behind")
    return (
        f"<div><p>{'; '.join(lines)}</p>"
        f"<div style='max-height: 40em; overflow: auto'>{network_svg(layers_of(nnet))}</div></div>"
    )


def context_of(nnet: NetworkStructure) -> tuple[int, int] | None:
    """The context in frames, left and right; None where it is not defined."""
    if not is_simple(nnet):
        return None
    try:
        return compute_context(nnet)
    except NetworkError:  # no output can be computed from frames of input alone
        return None
