"""Networks as text for people and scripts: config lines, and the text of nnet3-info."""

from __future__ import annotations

from collections.abc import Iterator

from nnet3_descriptors.descriptors.descriptor import written
from nnet3_descriptors.network_structure import (
    ComponentNode,
    DimRangeNode,
    InputNode,
    NetworkStructure,
    OutputNode,
)


def node_config_lines(nnet: NetworkStructure, *, with_dims: bool = False) -> tuple[str, ...]:
    """Returns the config lines of the nodes, in order, without line ends.

    Args:
        nnet: The network.
        with_dims: Add the dimensions that follow from the descriptors, as `info` shows them. Such
            lines are for reading only; `parse_config` takes those without.

    Raises:
        NetworkError: A descriptor is too long for `parse_config`.
    """
    return tuple(_config_lines(nnet, with_dims))


def _config_lines(nnet: NetworkStructure, with_dims: bool) -> Iterator[str]:
    text = str if with_dims else written
    for node in nnet.nodes:
        match node:
            case InputNode():
                yield f"input-node name={node.name} dim={node.dim}"
            case ComponentNode():
                input_node = nnet.input_of(node)
                line = (
                    f"component-node name={node.name} component={node.component} "
                    f"input={text(input_node.descriptor)}"
                )
                if with_dims:
                    input_dim, output_dim = map(nnet.node_dim, (input_node.name, node.name))
                    line += f" input-dim={input_dim} output-dim={output_dim}"
                yield line
            case DimRangeNode():
                yield (
                    f"dim-range-node name={node.name} input-node={node.source} "
                    f"dim-offset={node.dim_offset} dim={node.dim}"
                )
            case OutputNode():
                dim = f" dim={nnet.node_dim(node.name)}" if with_dims else ""
                yield (
                    f"output-node name={node.name} input={text(node.descriptor)}{dim} "
                    f"objective={node.objective}"
                )


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
