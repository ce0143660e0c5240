"""Components with extreme values in one or two of their fields.

Config lines and files bound the values of a field; a program that makes components itself can put
any value into any field. Most values are refused; the others must work in every use.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import attrs
import numpy as np
from component_forms import CONFIGS, from_config
from nnet3_descriptors import Nnet, parse_config

MOST_COLUMNS = 10_000
"""Components with more columns are not used: that takes long and shows nothing else."""

_INT32 = 2**31 - 1
_INTEGERS = (0, -1, 1, 2, 2**30, _INT32, -_INT32 - 1, _INT32 + 1, 2**63, 10**30)
_ELEMENTS = (0, -1, 1, _INT32, -_INT32 - 1)
_REALS = (float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e38, 1e10, 2.0, 1.0, 0.5, 0.0,
          -0.0, -1.0, 1e-320, 1e-45)  # fmt: skip
_TEXTS = ("", "x" * 10_000, "\0", "a b", "\x1b[31m")
_OTHERS: tuple[Any, ...] = (None, 0, "x", [], {})


class Changed(NamedTuple):
    """A component type, and new values of some of its fields.

    Attributes:
        name: Seed, number, type and changes.
        type: The component type.
        fields: The new values.
    """

    name: str
    type: str
    fields: dict[str, Any]

    def nnet(self) -> Nnet | None:
        """A network of one such component; None if it is too large to be used.

        Raises:
            Nnet3Error: The component refuses the values.
        """
        component = attrs.evolve(from_config(self.type, CONFIGS[self.type]), **self.fields)
        if component.input_dim > MOST_COLUMNS:
            return None
        nnet = parse_config(
            f"input-node name=input dim={component.input_dim}\n"
            f"component name=c type=NoOpComponent dim={component.input_dim}\n"
            "component-node name=c component=c input=input\noutput-node name=output input=c\n"
        )
        return attrs.evolve(nnet, components=[component])


def changed_fields(seed: int, number: int) -> Changed:
    """Draws a component type and new values of one or two of its fields."""
    rng = random.Random(f"fields {seed}:{number}")
    kind = list(CONFIGS)[number % len(CONFIGS)]
    component = from_config(kind, CONFIGS[kind])
    names = [field.name for field in attrs.fields(type(component)) if field.init]
    chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2))))
    fields = {name: _other(rng, getattr(component, name)) for name in chosen}
    return Changed(f"fields {seed}:{number}, {kind} with {str(fields)[:200]}", kind, fields)


def _other(rng: random.Random, value: Any) -> Any:
    """A value to put in the place of another one."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice(_INTEGERS)
        case float():
            return rng.choice(_REALS)
        case np.ndarray():
            return _other_array(rng, value)
        case tuple():
            return _other_tuple(rng, value)
        case str():
            return rng.choice(_TEXTS)
    return rng.choice(_OTHERS)


@np.errstate(all="ignore")
def _other_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """An array with other values, or of another shape."""
    numbers = _REALS if array.dtype.kind == "f" else _ELEMENTS
    match rng.randrange(5):
        case 0:
            return np.full(array.shape, rng.choice(numbers))
        case 1 if array.size:
            changed = array.astype(np.float64)
            changed.reshape(-1)[rng.randrange(array.size)] = rng.choice(numbers)
            return changed
        case 2:
            return np.zeros((0,) * array.ndim, array.dtype)
        case 3:
            return array * np.float64(rng.choice(numbers))
    return np.resize(array, [max(0, size + rng.choice((-1, 0, 1))) for size in array.shape])


def _other_tuple(rng: random.Random, value: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple with one element more or less, or with another one; or none at all."""
    if not value or rng.randrange(4) == 0:
        return ()
    at = rng.randrange(len(value))
    between = rng.choice(((), (_other(rng, value[at]),), (value[at], value[at])))
    return (*value[:at], *between, *value[at + 1 :])
