"""Formula: the arithmetic of one component type, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
import numpy as np
from nnet3_descriptors import Component, ComponentProperties
from nnet3_descriptors.extensions import load_extensions

from nnet3_runtime_reference.draws import Array, Draws, MakeMask, UnsupportedComponentError


@attrs.frozen(kw_only=True, eq=False)
class Call:
    """The arguments that a command gives a component. A formula does not change the arrays.

    Arrays that the command does not give are all NaN, so that NaN shows if a formula reads one.

    Attributes:
        component: The component, with its parameters and the statistics stored so far.
        statistics: The statistics stored by this computer, not rounded to single precision as those
            of the component are, by the names of fields.
        name: Its name in the network.
        x: (rows_in, input_dim), the value at the input.
        y: (rows_out, output_dim), the value at the output; not given to forward.
        dy: (rows_out, output_dim), the derivative at the output; given to backward.
        rows_in: Number of rows of the input; 0 if the command names neither its value nor its
            derivative.
        rows_out: Number of rows of the output.
        indexes: The precomputed indexes of the component; None for nothing.
        memo: The result of `Formula.memo` before the forward pass.
        decision: The result of `Formula.decide` before the backward pass.
        updates: Whether the command is a Backprop, which updates the model. Only then is there
            self-repair, and are statistics of the backward pass stored.
        draws: Source of masks and decisions.
        dtype: The precision of the arithmetic.
    """

    component: Any
    statistics: Mapping[str, Any] = attrs.field(factory=dict)
    name: str
    x: Array
    y: Array
    dy: Array
    rows_in: int
    rows_out: int
    indexes: Any = None
    memo: Any = None
    decision: Any = None
    updates: bool = False
    draws: Draws
    dtype: np.dtype[Any]

    def parameter(self, name: str) -> Array:
        """Returns an array of the component, by the name of its field, in `dtype`."""
        values = self.statistics.get(name, getattr(self.component, name))
        return np.array(values, dtype=self.dtype)

    def with_statistics(self, changed: Mapping[str, Any]) -> Call:
        """Returns the call of the same component with other values of some statistics."""
        component = self.component.replace(**changed)
        return attrs.evolve(self, component=component, statistics={**self.statistics, **changed})

    def zeros_in(self) -> Array:
        """Returns zeros in the shape of the input."""
        return np.zeros((self.rows_in, self.component.input_dim), dtype=self.dtype)

    def zeros_out(self) -> Array:
        """Returns zeros in the shape of the output."""
        return np.zeros((self.rows_out, self.component.output_dim), dtype=self.dtype)

    def has(self, properties: ComponentProperties) -> bool:
        """Returns whether the component promises any of these."""
        return bool(self.component.properties & properties)

    def chance(self, probability: float) -> bool:
        """Returns True with the given probability."""
        return self.draws.chance(self.name, probability)

    def mask(self, shape: tuple[int, int], make: MakeMask) -> Array:
        """Returns a random mask in `dtype`, drawn by `make` unless masks were given."""
        return np.array(self.draws.mask(self.name, shape, make), dtype=self.dtype)


class Formula:
    """The arithmetic of one component type. It holds no state.

    The first line of the docstring of a subclass is the formula; the rest gives its source and the
    meaning of its letters. Propagate calls `memo`, then `forward`. StoreStats calls `statistics`.
    Backprop calls `decide`, `backward` if an input derivative is wanted, `gradient`, and
    `backward_statistics`, all with the component as it was before. BackpropNoModelUpdate calls only
    `backward`. A formula needs `x`, `y` and `memo` only as the component's properties say
    (BACKPROP_NEEDS_INPUT, ...).
    """

    def __repr__(self) -> str:
        """The class, which holds no state."""
        return f"<{type(self).__name__}>"

    def memo(self, call: Call) -> Any:
        """Returns values that forward, backward and statistics share; the call has x."""
        return None

    def forward(self, call: Call) -> Array:
        """Returns the (rows_out, output_dim) that Propagate sets, or adds if PROPAGATE_ADDS."""
        raise NotImplementedError

    def decide(self, call: Call) -> Any:
        """Returns the random decisions of a Backprop: whether to repair, to store statistics."""
        return None

    def backward(self, call: Call) -> Array:
        """Returns the (rows_in, input_dim) that Backprop sets, or adds if BACKPROP_ADDS."""
        raise NotImplementedError

    def gradient(self, call: Call) -> Mapping[str, Array]:
        """Returns the plain gradient of each parameter, by the names of `parameter_arrays`."""
        return {}

    def statistics(self, call: Call) -> Mapping[str, Any]:
        """Returns the fields that StoreStats changes, with their new values; the call has y."""
        return {}

    def backward_statistics(self, call: Call) -> Mapping[str, Any]:
        """Returns the fields that Backprop changes apart from parameters, with their new values."""
        return {}


_F = TypeVar("_F", bound=type[Formula])

ENTRY_POINTS = "nnet3_runtime_reference.formulas"
"""The group of entry points where other packages offer formulas, by name of component type."""

_FORMULAS: dict[type[Component], Formula] = {}


def formula(*component_types: type[Component]) -> Callable[[_F], _F]:
    """Registers a class of formulas for component types."""

    def register(formula_class: _F) -> _F:
        for component_type in component_types:
            _FORMULAS[component_type] = formula_class()
        return formula_class

    return register


def registered_formula(component_type: type[Component]) -> Formula:
    """Returns the formula of a component type, here or in an installed package.

    Raises:
        UnsupportedComponentError: it has none.
        Nnet3Error: an installed package offers it, but it cannot be imported.
    """
    if component_type not in _FORMULAS:
        load_extensions(ENTRY_POINTS, component_type.type)
    try:
        return _FORMULAS[component_type]
    except KeyError:
        name = component_type.__name__
        raise UnsupportedComponentError(f"{name} has no formula here") from None


def formula_of(component: Component) -> Formula:
    """Returns the formula of a component.

    Raises:
        UnsupportedComponentError: its type has none.
    """
    return registered_formula(type(component))
