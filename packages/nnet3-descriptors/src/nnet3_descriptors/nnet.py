"""A network, its parameters as arrays and vectors, and its mode."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors import errors, network_structure, printing, similar_names
from nnet3_descriptors.components.declaration.base import Component
from nnet3_descriptors.frozen_arrays import check_finite, real_numbers, single_precision
from nnet3_descriptors.network_structure import Node
from nnet3_descriptors.values import Serialized, shown


@attrs.frozen(kw_only=True, repr=False)
class Nnet(network_structure.NetworkStructure, Serialized):
    """A neural network. It is frozen; functions that change it return a new one.

    Attributes:
        component_names: One name for each component.
        components: The components, in the order of the file.
        nodes: The nodes. The component-input node of a component node comes directly before it.

    Raises:
        NetworkError: The parts do not make a network; the message names the node.
    """

    FORMAT: ClassVar[str] = "nnet3.nnet"
    VERSION: ClassVar[int] = 1

    def __attrs_post_init__(self) -> None:
        """Takes sequences that are not tuples, and refuses a network that contradicts itself."""
        for name in ("component_names", "components", "nodes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        network_structure.check_network(self)

    def __repr__(self) -> str:
        return (
            f"<Nnet: {len(self.nodes)} nodes, {len(self.components)} components, "
            f"{self.num_parameters} parameters>"
        )

    # -- components ----------------------------------------------------------------------------

    @classmethod
    def of(cls, components: Mapping[str, Component], nodes: Iterable[Node]) -> Self:
        """Returns the network of components, by name in their order, and of nodes.

        Raises:
            NetworkError: They contradict each other.
        """
        return cls(
            component_names=tuple(components),
            components=tuple(components.values()),
            nodes=tuple(nodes),
        )

    def with_components(self, replacements: Mapping[str, Component]) -> Self:
        """Returns the network with some components replaced.

        Args:
            replacements: New components by the names of those they replace.

        Raises:
            NetworkError: A name is unknown, or a dimension no longer fits.
        """
        components = list(self.components)
        for name, component in replacements.items():
            components[self.component_index(name)] = component
        return attrs.evolve(self, components=tuple(components))

    # -- parameters and statistics -------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """Returns all arrays of all components: parameters, fixed values and statistics.

        Returns:
            Read-only float32 arrays by "<component>.<field>", as in "tdnn1.affine.linear_params",
            in the order of the components; float64 where files hold double precision.

        Raises:
            NetworkError: Two arrays have the same name, as a component "c.0" has those of the first
                part of a composite component "c".
        """
        return {name: array for name, (_, _, array) in self._places().items()}

    def _places(self) -> dict[str, tuple[str, str, NDArray[np.float32]]]:
        """Returns for each name of `state_dict` the component, the field and the array."""
        places: dict[str, tuple[str, str, NDArray[np.float32]]] = {}
        for component_name, component in zip(self.component_names, self.components, strict=True):
            for field, array in component.arrays().items():
                name = f"{component_name}.{field}"
                if name in places:
                    raise errors.NetworkError(
                        f"arrays of the components '{places[name][0]}' and '{component_name}' have "
                        f"the same name '{name}'"
                    )
                places[name] = component_name, field, array
        return places

    def with_state_dict(self, arrays: Mapping[str, ArrayLike]) -> Self:
        """Returns the network with other arrays.

        Args:
            arrays: New values by the names of `state_dict`; of the same shapes, finite, converted
                to the same precision. Arrays that are not named stay as they are, even if a file
                had infinity or NaN for them.

        Raises:
            NetworkError: This is not a mapping, a name is unknown, a shape differs, or values are
                no numbers or not finite; or two arrays have the same name.
        """
        places = self._places()
        fields: dict[str, dict[str, NDArray[np.float32]]] = {}
        _check_mapping(arrays)
        for name, values in arrays.items():
            if name not in places:
                meant = similar_names.hint(name, places) if isinstance(name, str) else ""
                raise errors.NetworkError(f"there is no array '{name}'{meant}")
            component_name, field, current = places[name]
            array = _numbers(f"'{name}'", values, current.shape, current.dtype)
            _require_finite(f"'{name}'", array)
            fields.setdefault(component_name, {})[field] = array
        return self.with_components(
            {name: self.component(name).replace(**changes) for name, changes in fields.items()}
        )

    def export_safetensors(self, path: str | os.PathLike[str]) -> None:
        """Writes all arrays as a safetensors file, under the names of `state_dict`.

        The file has the arrays only, for programs that know the network; `save` writes the network
        with its nodes and settings. A file of that name is replaced at once or not at all.

        Args:
            path: Where to write.

        Raises:
            FileError: The file cannot be written.
            NetworkError: Two arrays have the same name.
        """
        from safetensors.numpy import save

        from nnet3_descriptors.files import write_atomically

        arrays = {name: np.ascontiguousarray(array) for name, array in self.state_dict().items()}
        write_atomically(path, [save(arrays)])

    # -- descriptions --------------------------------------------------------------------------

    def info(self, context: tuple[int, int] | None = None) -> str:
        """Returns the text that nnet3-info prints: context, nodes and components.

        Args:
            context: Left and right context in frames, as `nnet3_graph.compute_context` finds them;
                None leaves them out, as nnet3-info does for networks that have none.
        """
        return printing.format_info(self, context)

    def _repr_svg_(self) -> str | None:
        """The layers as a drawing, for notebooks that show no HTML."""
        return shown("network_picture", self)

    def _repr_html_(self) -> str | None:
        """Size, context and drawing, for notebooks."""
        return shown("network_html", self)


def _check_mapping(arrays: object) -> None:
    if not isinstance(arrays, Mapping):
        found = type(arrays).__name__
        raise errors.NetworkError(f"expected a mapping from names to arrays, found {found}")


def _numbers(
    what: str, values: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Returns the values of a caller as an array of this shape, float32 if `dtype` is."""
    try:
        array = single_precision(values) if dtype == np.float32 else real_numbers(values)
    except (TypeError, ValueError) as error:
        raise errors.NetworkError(f"{what} must be numbers: {error}") from error
    if array.shape != shape:
        raise errors.NetworkError(f"{what} must have the shape {shape} (got {array.shape})")
    return array


def _require_finite(what: str, array: NDArray[Any]) -> None:
    try:
        check_finite(array)
    except ValueError as error:
        raise errors.NetworkError(f"{what} must be finite: {error}") from error


def vectorize(nnet: Nnet) -> NDArray[np.float32]:
    """Returns the parameters of all updatable components as one vector, in Kaldi's order.

    Returns:
        (num_parameters,) float32: component by component, in each component in the order of its
        `parameters`, matrices row by row.
    """
    pieces = [
        array.reshape(-1)
        for component in nnet.components
        for array in component.parameter_arrays().values()
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.float32)


def unvectorize(nnet: Nnet, vector: ArrayLike) -> Nnet:
    """Returns the network with other parameters; the inverse of `vectorize`.

    Args:
        nnet: The network that gives all but the values.
        vector: (num_parameters,), finite, converted to float32.

    Raises:
        NetworkError: The vector has another shape, or a value that is not a finite number.
    """
    values = _numbers("the vector", vector, (nnet.num_parameters,), np.dtype(np.float32))
    components: dict[str, Component] = {}
    start = 0
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        changed = {}
        for field, array in component.parameter_arrays().items():
            changed[field] = values[start : start + array.size].reshape(array.shape)
            _require_finite(f"'{name}.{field}'", changed[field])
            start += array.size
        if changed:
            components[name] = component.with_parameters(changed)
    return nnet.with_components(components)


def set_test_mode(nnet: Nnet, on: bool = True) -> Nnet:
    """Returns the network with batch-norm and dropout components in test mode, or out of it.

    In test mode batch-norm uses the stored statistics, and dropout lets everything pass.

    Args:
        nnet: The network.
        on: Whether test mode is wanted.
    """
    return nnet.with_components(
        {
            name: component.with_test_mode(on)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
        }
    )
