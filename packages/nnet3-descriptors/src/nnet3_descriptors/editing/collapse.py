"""Folding components into the ones that follow them, for faster inference.

If the input of a component-node "b" has only values of one component node "a", at one or more time
offsets, these pairs are collapsed:

- dropout, in test mode, then a component with linear parameters: these are scaled;
- batch-norm, in test mode, then an affine, linear or TDNN component: its parameters absorb
  offset and scale;
- an affine map that does not reduce the dimension, then an affine component: the product;
- an affine component, then fixed scales: its rows are scaled.

"b" then applies the combined component to the input of "a", shifted by its own offsets. Nodes and
components that are no longer needed are removed. The outputs do not change, except for rounding.

The component that combines "a" and "b" is named "a.b", with a number behind it if there is another
component of that name. Of a long name only the first letters are taken.
"""

from __future__ import annotations

from itertools import chain, count

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors import components as types
from nnet3_descriptors import errors, indexes
from nnet3_descriptors.components import (
    AffineComponent,
    Component,
    FixedAffineComponent,
    LinearComponent,
    TdnnComponent,
)
from nnet3_descriptors.components.affine import AffineFamily
from nnet3_descriptors.descriptors import Descriptor, ForwardingDescriptor
from nnet3_descriptors.descriptors.descriptor import shifted
from nnet3_descriptors.editing.structure import remove_orphans
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.network_structure import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    Node,
)
from nnet3_descriptors.nnet import Nnet


def collapse_model(nnet: Nnet, options: CollapseOptions | None = None) -> Nnet:
    """Returns a network of fewer components that computes the same.

    Args:
        nnet: The network, in test mode (see `set_test_mode`) if dropout or batch-norm is to be
            collapsed.
        options: The pairs of components to collapse; by default all.

    Raises:
        NetworkError: A component that is to be collapsed is not in test mode.
    """
    options = CollapseOptions() if options is None else options
    components = dict(zip(nnet.component_names, nnet.components, strict=True))
    applied = {node.name: node.component for node in nnet.nodes if isinstance(node, ComponentNode)}
    inputs = {
        node.name: node.descriptor for node in nnet.nodes if isinstance(node, ComponentInputNode)
    }
    known: dict[tuple[str, str], str] = {}
    collapsed: set[tuple[str, str]] = set()
    before = -1
    while len(collapsed) > before:
        before = len(collapsed)
        for name in applied:
            source, shifts = _only_source(inputs[name + INPUT_SUFFIX])
            if source not in applied or (name, source) in collapsed:  # as in a cycle
                continue
            combined = _combined_name(components, applied[source], applied[name], options, known)
            if combined is not None:
                parts = inputs[source + INPUT_SUFFIX].parts
                moved = [shifted(part, t, x) for t, x in shifts for part in parts]
                inputs[name + INPUT_SUFFIX] = Descriptor(tuple(moved))
                applied[name] = combined
                collapsed.add((name, source))
    nodes: list[Node] = []
    for node in nnet.nodes:
        if isinstance(node, ComponentInputNode) and inputs[node.name] is not node.descriptor:
            node = attrs.evolve(node, descriptor=inputs[node.name])
        elif isinstance(node, ComponentNode) and applied[node.name] != node.component:
            node = attrs.evolve(node, component=applied[node.name])
        nodes.append(node)
    return remove_orphans(Nnet.of(components, nodes))


_LONGEST_NAME = 1000
"""The most letters of a name that is made here, but for its number; files have 4096 at most."""


def _only_source(descriptor: Descriptor) -> tuple[str | None, list[tuple[int, int]]]:
    """Returns the node that all parts take their values from at fixed offsets, unscaled.

    Returns:
        The node, None if there is none; and for each part its offsets in t and x.
    """
    sources, shifts = set(), []
    for part in descriptor.parts:
        if not isinstance(part, ForwardingDescriptor):
            return None, []
        shift = part.shift()
        if shift is None or part.scale(indexes.make_indexes(0, 0)) != 1.0:
            return None, []
        name, t_offset, x_offset = shift
        sources.add(name)
        shifts.append((t_offset, x_offset))
    return (sources.pop() if len(sources) == 1 else None), shifts


def _combined_name(
    components: dict[str, Component],
    first_name: str,
    second_name: str,
    options: CollapseOptions,
    known: dict[tuple[str, str], str],
) -> str | None:
    """Returns the name of a component that does the work of two, if there can be one.

    Args:
        components: All components, by name; a new one is added.
        first_name: The name of the first.
        second_name: The name of the one behind it.
        options: The pairs of components to collapse.
        known: The names of the pairs that were combined before.
    """
    names = first_name, second_name
    if names in known:
        return known[names]
    first, second = components[first_name], components[second_name]
    try:
        combined = combine(first, second, options)
    except errors.NetworkError as error:
        raise errors.NetworkError(f"component '{first_name}': {error}") from error
    if combined is None or combined is second:
        return None if combined is None else second_name
    wanted = f"{first_name}.{second_name}"[:_LONGEST_NAME]
    free = chain([wanted], (f"{wanted}.{number}" for number in count(2)))
    name = known[names] = next(name for name in free if name not in components)
    components[name] = combined
    return name


Array = NDArray[np.float64]


@attrs.frozen(kw_only=True)
class CollapseOptions:
    """The pairs of components to combine.

    Attributes:
        dropout: Dropout, then a component with linear parameters.
        batchnorm: Batch-norm, then an affine, linear or TDNN component.
        affine: A fixed or other affine component, then an affine component.
        scale: An affine component, then fixed scales.
    """

    dropout: bool = True
    batchnorm: bool = True
    affine: bool = True
    scale: bool = True


def combine(first: Component, second: Component, options: CollapseOptions) -> Component | None:
    """Returns a component that computes `second` of the output of `first`.

    The input of `second` may be several outputs of `first` side by side. The input of the combined
    component is then the same number of inputs of `first` side by side.

    Returns:
        The component; `second` itself where `first` does nothing; None if the classes of the two,
        or the options, do not allow it, or if single precision cannot hold its parameters.

    Raises:
        NetworkError: `first` is not in test mode.
    """
    with np.errstate(all="ignore"):
        combined = _combined(first, second, options)
    if combined is None or combined is second:
        return combined
    arrays = combined.parameter_arrays().values()
    return combined if all(np.isfinite(array).all() for array in arrays) else None


def _combined(first: Component, second: Component, options: CollapseOptions) -> Component | None:
    # By name: a class is made when it is first asked for, and most networks have few of these.
    if options.dropout and first.type in ("DropoutComponent", "GeneralDropoutComponent"):
        return _after_dropout(first, second)
    if options.batchnorm and first.type == "BatchNormComponent":
        assert isinstance(first, types.BatchNormComponent)
        _check_test_mode(first.test_mode)
        return _after_diagonal(first.scale, first.offset, second)
    if isinstance(first, AffineFamily | FixedAffineComponent):
        if options.affine and isinstance(second, AffineFamily):
            return _after_affine(first, second)
        if options.scale and second.type == "FixedScaleComponent":
            return _before_scale(first, second)
    return None


def _check_test_mode(test_mode: bool) -> None:
    if not test_mode:
        raise NetworkError("only in test mode (set_test_mode) can it be folded into the next one")


def _after_dropout(first: Component, second: Component) -> Component | None:
    """Dropout lets the part 1 - proportion pass in test mode; GeneralDropout lets all pass."""
    assert isinstance(first, types.DropoutComponent | types.GeneralDropoutComponent)
    _check_test_mode(first.test_mode)
    is_plain = isinstance(first, types.DropoutComponent)
    scale = 1.0 - first.dropout_proportion if is_plain else 1.0
    match second:
        case _ if scale == 1.0:
            return second
        case LinearComponent():
            return second.replace(params=second.params * scale)
        case AffineFamily() | TdnnComponent() | types.TimeHeightConvolutionComponent():
            return second.replace(linear_params=second.linear_params * scale)
    return None


def _after_diagonal(scale: Array, offset: Array, second: Component) -> Component | None:
    """Returns a component for W (scale * x + offset) + b, where `second` computes W x + b."""
    if not isinstance(second, AffineFamily | LinearComponent | TdnnComponent):
        return None
    linear = second.params if isinstance(second, LinearComponent) else second.linear_params
    repeats = linear.shape[1] // len(scale)
    new_linear = linear * np.tile(scale, repeats)
    new_bias = linear @ np.tile(offset, repeats)
    if isinstance(second, LinearComponent):
        return AffineComponent(
            linear_params=new_linear.astype(np.float32),
            bias_params=new_bias.astype(np.float32),
            learning_rate=second.learning_rate,
        )
    if second.bias_params.size > 0:
        new_bias += second.bias_params
    return second.replace(linear_params=new_linear, bias_params=new_bias)


def _after_affine(
    first: AffineFamily | FixedAffineComponent, second: AffineFamily
) -> Component | None:
    """Returns the product of two affine maps, unless the first one reduces the dimension."""
    if first.input_dim > first.output_dim:
        return None
    repeats = second.input_dim // first.output_dim
    linear = second.linear_params.astype(np.float64)
    blocks = linear.reshape(second.output_dim, repeats, first.output_dim)
    new_linear = (blocks @ first.linear_params).reshape(second.output_dim, -1)
    new_bias = linear @ np.tile(first.bias_params, repeats) + second.bias_params
    return AffineComponent(
        linear_params=new_linear.astype(np.float32), bias_params=new_bias.astype(np.float32)
    )


def _before_scale(
    first: AffineFamily | FixedAffineComponent, second: Component
) -> Component | None:
    """Returns an affine map whose output is scaled already."""
    assert isinstance(second, types.FixedScaleComponent)
    if isinstance(first, FixedAffineComponent) or first.output_dim != second.input_dim:
        return None
    return first.replace(
        linear_params=first.linear_params * second.scales[:, None],
        bias_params=first.bias_params * second.scales,
    )
