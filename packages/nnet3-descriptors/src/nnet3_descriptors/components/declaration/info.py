"""The text that `info` prints: numbers, summaries of vectors, statistics of parameters.

Scripts compare these lines, so numbers are rounded where Kaldi rounds them, and sums are in single
precision where Kaldi's are.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

InfoEntry = str | Callable[[Any], str]
"""The name of a field or property, or a function of the component that returns text or ''."""

Array = NDArray[np.float32]

_PERCENTILES: Final = (0, 1, 2, 5, 10, 20, 50, 80, 90, 95, 98, 99, 100)
_SHORT_VECTOR: Final = 10


def number(value: float, digits: int = 6) -> str:
    """Returns a number as C++ streams print it with that many significant digits."""
    text = f"{value:.{digits}g}"
    return "-nan" if text == "nan" and np.signbit(value) else text


def item(label: str, value: object) -> str:
    """Returns ', label=value'."""
    if isinstance(value, bool | np.bool_):
        return f", {label}={'true' if value else 'false'}"
    if isinstance(value, float | np.floating):
        return f", {label}={number(float(value))}"
    if isinstance(value, tuple):
        return f", {label}={','.join(str(part) for part in value)}"
    return f", {label}={value}"


def items(component: Any, entries: Iterable[InfoEntry]) -> str:
    """Returns the items of a component, each with a comma before it.

    Args:
        component: The component.
        entries: Names of fields, which are shown as they are declared; names of properties;
            functions of the component that return text. Empty: all fields in order.
    """
    specs = {spec.name: spec for spec in component.FIELDS}
    parts = []
    for entry in entries or specs:
        if not isinstance(entry, str):
            parts.append(entry(component))
        elif entry in specs:
            spec = specs[entry]
            if spec.is_shown(component):
                parts.append((spec.show or item)(spec.info or "", getattr(component, entry)))
        else:
            parts.append(item(entry.replace("_", "-"), getattr(component, entry)))
    return "".join(parts)


def _short_number(value: float) -> str:
    size = abs(value)
    if 10.0 <= size < 10000.0:
        return f"{value:.0f}"
    if size >= 0.995:
        return f"{value:.1f}"
    if size >= 0.01:
        return f"{value:.2f}"
    return number(value, 1)


def _mean_and_stddev(values: Array) -> tuple[float, float]:
    """Returns mean and standard deviation with Kaldi's roundings to single precision."""
    flat = values.ravel()
    size = np.float32(flat.size)
    # Kaldi sums a matrix in double precision, and a vector in single, element by element.
    total = flat.sum(dtype=np.float64) if values.ndim == 2 else np.add.accumulate(flat)[-1]
    mean = np.float32(total) / size
    stddev = np.sqrt(np.dot(flat, flat) / size - mean * mean)
    return float(mean), float(stddev)


def summarize_vector(values: NDArray[np.floating[Any]]) -> str:
    """Returns all values of a short vector, and percentiles, mean and deviation of a long one."""
    vector = np.asarray(values, dtype=np.float32)
    if vector.size < _SHORT_VECTOR:
        return "[ " + "".join(f"{_short_number(float(value))} " for value in vector) + "]"
    ordered = np.sort(vector)
    picked = [
        _short_number(float(ordered[(vector.size - 1) * percentile // 100]))
        for percentile in _PERCENTILES
    ]
    groups = (picked[:4], picked[4:9], picked[9:])
    mean, stddev = _mean_and_stddev(vector)
    return (
        "[percentiles(0,1,2,5 10,20,50,80,90 95,98,99,100)=("
        f"{' '.join(','.join(group) for group in groups)})"
        f", mean={number(mean, 3)}, stddev={number(stddev, 3)}]"
    )


def _root_mean_square(values: Array) -> float:
    flat = values.ravel()
    return float(np.sqrt(np.dot(flat, flat) / np.float32(flat.size)))


def mean_stddev(label: str, values: Array) -> str:
    """Returns the item '{mean,stddev}' of a parameter."""
    mean, stddev = _mean_and_stddev(values)
    return f", {label}-{{mean,stddev}}={number(mean, 4)},{number(stddev, 4)}"


def root_mean_square(label: str, values: Array) -> str:
    """Returns the item 'rms' of a parameter."""
    return f", {label}-rms={number(_root_mean_square(values), 4)}"


def root_mean_square_and_norms(label: str, values: Array) -> str:
    """Returns the root mean square of a matrix and the norms of its rows and columns."""
    row_norms = np.sqrt(np.einsum("rc,rc->r", values, values))
    col_norms = np.sqrt(np.einsum("rc,rc->c", values, values))
    return (
        root_mean_square(label, values)
        + f", {label}-row-norms={summarize_vector(row_norms)}"
        + f", {label}-col-norms={summarize_vector(col_norms)}"
    )
