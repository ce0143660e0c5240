"""Config text to network.

    line = "component" name= type= ... (keys of the component type)
         | "component-node" name= component= input=<descriptor>
         | "input-node" name= dim=
         | "output-node" name= input=<descriptor> [objective=linear|quadratic]
         | "dim-range-node" name= input-node= dim-offset= dim=

Nodes may refer to nodes and components that are defined further down. `#` begins a comment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import attrs
import numpy as np

from nnet3_descriptors import descriptors, errors
from nnet3_descriptors.components.declaration import registry
from nnet3_descriptors.components.declaration.base import Component
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.descriptors.descriptor import normalize
from nnet3_descriptors.descriptors.grammar import parse_expression
from nnet3_descriptors.limits import current_limits, use_limits
from nnet3_descriptors.network_structure import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)
from nnet3_descriptors.nnet import Nnet
from nnet3_descriptors.similar_names import hint
from nnet3_descriptors.text import is_valid_name

_COMPONENT: Final = "component"
_NODE_CLASSES: Final[Mapping[str, type[Node]]] = {
    "component-node": ComponentNode,
    "input-node": InputNode,
    "output-node": OutputNode,
    "dim-range-node": DimRangeNode,
}

_XCONFIG_HINT: Final = (
    "; this is a line of an xconfig: Kaldi's steps/nnet3/xconfig_to_configs.py makes config lines "
    "of it (configs/final.config)"
)


def parse_config(
    text: str, base: Nnet | None = None, *, rng: np.random.Generator | None = None
) -> Nnet:
    """Builds a network from config lines, or extends one.

    Args:
        text: The config lines. Of a key that a line has twice, the first counts, as in Kaldi.
        base: A network to extend. A node or component that the text defines again replaces the
            one of the same name: a component in its place, a node at the end.
        rng: Source of initial parameters; by default a generator with a fixed seed.

    Raises:
        ConfigError: A line has an error, names a file that cannot be read, or makes an invalid
            network.
        DescriptorSyntaxError: A descriptor has a syntax error.
        NetworkError: The network is invalid, but no single line is at fault.
    """
    rng = rng or np.random.default_rng(0)
    if base is None:
        return extend_network(text, {}, (), rng=rng)
    components = dict(zip(base.component_names, base.components, strict=True))
    return extend_network(text, components, base.nodes, rng=rng)


def extend_network(
    text: str,
    components: Mapping[str, Component],
    nodes: Iterable[Node],
    *,
    rng: np.random.Generator | None = None,
) -> Nnet:
    """Builds a network from components and nodes at hand and from config lines.

    Args:
        text: The config lines.
        components: Components at hand, by name, in order.
        nodes: Nodes at hand; they may refer to nodes of the text.
        rng: Source of initial parameters. Without one the text must not define components: a model
            file has its components, and config lines in it must not name files to read.

    Raises:
        ConfigError, DescriptorSyntaxError, NetworkError: As `parse_config`.
    """
    errors.ConfigError.check_text(text)
    component_lines, node_lines = _sort_lines(text)
    components = dict(components)
    limits = current_limits()
    parameters_left = limits.parameters
    for name, line in component_lines.items():
        if rng is None:
            raise line.error("components cannot be defined here")
        with use_limits(attrs.evolve(limits, parameters=parameters_left)):
            components[name] = _parse_component(line, rng)
        parameters_left = max(parameters_left - components[name].num_parameters, 0)
    kept = tuple(_nodes_without(nodes, node_lines))
    known: _Classes = {node.name: type(node) for node in kept}
    known |= {name: _NODE_CLASSES[line.first_word] for name, line in node_lines.items()}
    parsed = [node for line in node_lines.values() for node in _parse_node(line, components, known)]
    try:
        return Nnet.of(components, (*kept, *parsed))
    except errors.NetworkError as error:
        node = error.node or ""
        blamed = node_lines.get(node) or node_lines.get(node.removesuffix(INPUT_SUFFIX))
        if blamed is not None:
            raise blamed.error(str(error), "input") from error
        raise


def _nodes_without(nodes: Iterable[Node], redefined: Mapping[str, ConfigLine]) -> Iterator[Node]:
    """Returns the nodes that are not redefined; component-input nodes go with their nodes."""
    for node in nodes:
        is_input = isinstance(node, ComponentInputNode)
        name = node.name.removesuffix(INPUT_SUFFIX) if is_input else node.name
        if name not in redefined:
            yield node


def config_lines(text: str) -> Iterator[ConfigLine]:
    """Returns the lines of a text that are neither blank nor comment.

    Raises:
        ConfigError: A line is not a sequence of `key=value`.
    """
    start = 0
    for line in text.split("\n"):
        content = line.partition("#")[0].rstrip()
        if content:
            indent = len(content) - len(content.lstrip())
            yield ConfigLine.parse(text, (start + indent, start + len(content)))
        start += len(line) + 1


def _is_xconfig(line: ConfigLine) -> bool:
    """Tells whether a line is of an xconfig, which describes layers and no components."""
    return line.first_word in ("input", "output") or line.first_word.endswith("-layer")


def _sort_lines(text: str) -> tuple[dict[str, ConfigLine], dict[str, ConfigLine]]:
    """Returns the lines that define components, and the lines that define nodes, by name."""
    component_lines: dict[str, ConfigLine] = {}
    node_lines: dict[str, ConfigLine] = {}
    most = current_limits().nodes
    for line in config_lines(text):
        if line.first_word != _COMPONENT and line.first_word not in _NODE_CLASSES:
            words = (_COMPONENT, *_NODE_CLASSES)
            meant = _XCONFIG_HINT if _is_xconfig(line) else hint(line.first_word, words)
            raise line.error(
                f"a line must begin with one of {', '.join(words)}{meant}", line.first_word
            )
        kind = "component" if line.first_word == _COMPONENT else "node"
        lines = component_lines if kind == "component" else node_lines
        name = line.text("name")
        if not is_valid_name(name):
            raise line.error(
                "'name' must begin with a letter or '_' and hold only letters, digits, '_', '-' "
                f"and '.' (got '{name}')",
                "name",
            )
        if name in lines:
            raise line.error(f"{kind} '{name}' is defined twice", "name")
        lines[name] = line
        if len(lines) > most:
            message = f"the number of {kind}s is above the limit of {most} (Limits.nodes)"
            raise line.error(message)
    return component_lines, node_lines


def _parse_component(line: ConfigLine, rng: np.random.Generator) -> Component:
    type_name = line.text("type")
    if not registry.is_component_type(type_name):
        known = registry.component_types()
        raise line.error(f"unknown component type '{type_name}'" + hint(type_name, known), "type")
    try:
        return registry.component_class(type_name).from_config(line, rng)
    except errors.NetworkError as error:
        raise line.error(str(error)) from error
    except errors.ModelFileError as error:
        named = (key for key, value in line.values.items() if value.text == error.path)
        raise line.error(str(error), next(named, None)) from error
    except MemoryError as error:
        raise line.error("the parameters of the component do not fit in memory") from error


_Classes = dict[str, type[Node]]
"""The nodes that lines may refer to, with their classes."""


def _parse_node(line: ConfigLine, components: Collection[str], known: _Classes) -> tuple[Node, ...]:
    name = line.text("name")
    nodes: tuple[Node, ...]
    match line.first_word:
        case "input-node":
            nodes = (InputNode(name=name, dim=line.integer("dim", minimum=1)),)
        case "dim-range-node":
            nodes = (_parse_dim_range_node(line, name, known),)
        case "component-node":
            component = line.text("component")
            if component not in components:
                message = f"there is no component '{component}'"
                raise line.error(message + hint(component, components), "component")
            descriptor = _parse_input(line, known)
            nodes = (
                ComponentInputNode(name=name + INPUT_SUFFIX, descriptor=descriptor),
                ComponentNode(name=name, component=component),
            )
        case _:
            nodes = (_parse_output_node(line, name, known),)
    line.finish(line.first_word)
    return nodes


def _parse_dim_range_node(line: ConfigLine, name: str, known: _Classes) -> DimRangeNode:
    source = line.text("input-node")
    if source not in known:
        message = f"there is no node '{source}'" + hint(source, known)
        raise line.error(message, "input-node")
    return DimRangeNode(
        name=name,
        source=source,
        dim_offset=line.integer("dim-offset", minimum=0),
        dim=line.integer("dim", minimum=1),
    )


def _parse_output_node(line: ConfigLine, name: str, known: _Classes) -> OutputNode:
    descriptor = _parse_input(line, known)
    objective = line.text("objective", "linear")
    try:
        return OutputNode(name=name, descriptor=descriptor, objective=objective)
    except errors.NetworkError as error:
        raise line.error(str(error), "objective") from error


def _parse_input(line: ConfigLine, known: _Classes) -> descriptors.Descriptor:
    """Parses the descriptor of a line and checks the nodes that it refers to."""
    line.text("input")
    expression = parse_expression(line.source, line.values["input"].span)
    for reference in expression.node_references():
        name = str(reference.values[0])
        node_class = known.get(name)
        if node_class is None:
            message = f"there is no node '{name}'" + hint(name, known)
            raise errors.ConfigError(message, line.source, reference.span)
        if issubclass(node_class, ComponentInputNode | OutputNode):
            message = f"'{name}' must be an input, component or dim-range node"
            raise errors.ConfigError(message, line.source, reference.span)
    return normalize(expression, line.source)
