"""Random numbers in a run: masks, and decisions about statistics and self-repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from nnet3_descriptors import Nnet3Error
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

MakeMask = Callable[[np.random.Generator], Array]
"""The definition of a mask: a function of a random generator."""


def uniform(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Returns numbers that are uniform in [0, 1), drawn in single precision."""
    return rng.random(shape, dtype=np.float32).astype(np.float64)


class Draws:
    """Draws masks and makes decisions; a subclass may do both in another way.

    Masks come from `numpy.random.default_rng(seed)`, in the order of the commands. Decisions come
    from a second generator, the first one that this generator spawns.
    """

    def __init__(self, seed: int = 0) -> None:
        """Begins with a seed.

        Raises:
            RunError: the seed is negative, or no integer.
        """
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise RunError(f"the seed must be an integer >= 0 (got {seed!r})")
        self._masks = np.random.default_rng(seed)
        self._decisions = self._masks.spawn(1)[0]

    def __repr__(self) -> str:
        """The class: its generators have no short description."""
        return f"<{type(self).__name__}>"

    def chance(self, component: str, probability: float) -> bool:
        """Returns True with the given probability.

        Args:
            component: The name of the component that asks.
            probability: From 0 to 1.
        """
        return bool(self._decisions.random() < probability)

    def mask(self, component: str, shape: tuple[int, int], make: MakeMask) -> Array:
        """Returns a mask.

        Args:
            component: The name of the component that asks.
            shape: Of the mask.
            make: Draws a mask, as the component does.
        """
        return make(self._masks)


class GivenMasks(Draws):
    """Hands out masks that were drawn before, for example by another runtime.

    A component without given masks draws its masks as `Draws` does.
    """

    def __init__(self, masks: Mapping[str, Iterable[Array]], seed: int = 0) -> None:
        """Takes masks.

        Args:
            masks: For each component, by name, its masks in the order of its Propagate commands.
            seed: The seed for decisions, and for other masks.

        Raises:
            RunError: the masks are no mapping; or the seed is negative, or no integer.
        """
        given: object = masks
        if not isinstance(given, Mapping):
            found = type(given).__name__
            raise RunError(f"expected a mapping from components to masks, found {found}")
        super().__init__(seed)
        self._given = {name: iter(arrays) for name, arrays in masks.items()}

    def mask(self, component: str, shape: tuple[int, int], make: MakeMask) -> Array:
        """Returns the next mask of the component.

        Raises:
            RunError: no mask is left, or it has another shape.
        """
        if component not in self._given:
            return super().mask(component, shape, make)
        found = next(self._given[component], None)
        if found is None:
            raise RunError(f"component '{component}': no mask is left, expected one of {shape}")
        if np.shape(found) != shape:
            raise RunError(
                f"component '{component}': a mask has shape {np.shape(found)}, expected {shape}"
            )
        return np.asarray(found)


class RunError(Nnet3Error):
    """Something given to a computation does not fit it."""


class UnsupportedComponentError(Nnet3Error):
    """A network holds a component type that has no formula here."""
