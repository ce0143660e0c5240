"""Components of every type with random configurations, and times at which they can be run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs
from component_options import ROW_BY_ROW, groups, matrix_map, one_dim, some
from computations import Case
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet


def _tdnn(rng: Random) -> Case:
    dim, options = matrix_map(rng)
    offsets, outputs = _offsets(rng), _times(rng)
    options += f" time-offsets={_listed(offsets)} {some(rng, 'use-bias=false')}"
    return Case(f"type=TdnnComponent {options}", dim, _reach(outputs, offsets), outputs)


def _time_height_convolution(rng: Random) -> Case:
    filters, height, step = rng.randint(1, 3), rng.randint(3, 6), rng.randint(1, 2)
    heights, offsets, outputs = rng.choice(["0", "-1,0,1", "0,1"]), _offsets(rng), _times(rng)
    required = rng.choice([offsets, (rng.choice(offsets),)])
    options = (
        f"num-filters-in={filters} num-filters-out={rng.randint(1, 3)} height-in={height} "
        f"height-out={-(-height // step)} height-subsample-out={step} height-offsets={heights} "
        f"time-offsets={_listed(offsets)} required-time-offsets={_listed(required)} bias-stddev=1"
    )
    inputs = _reach(outputs, rng.choice([required, offsets]))
    return Case(f"type=TimeHeightConvolutionComponent {options}", filters * height, inputs, outputs)


def _attention(rng: Random) -> Case:
    heads, key, value = (rng.randint(1, 3) for _ in range(3))
    left, right = rng.choice([(0, 1), (1, 0), (1, 2), (2, 2)])
    stride, needed, context = rng.randint(1, 2), rng.randint(0, left), rng.choice(["true", "false"])
    options = (
        f"num-heads={heads} key-dim={key} value-dim={value} num-left-inputs={left} "
        f"num-right-inputs={right} num-left-inputs-required={needed} time-stride={stride} "
        f"output-context={context} key-scale={rng.choice([0.3, 1.0])}"
    )
    outputs = _times(rng)
    inputs = _reach(outputs, (-needed * stride, 0, right * stride))
    dim = heads * (2 * key + value + left + 1 + right)
    return Case(f"type=RestrictedAttentionComponent {options}", dim, inputs, outputs)


def _extraction(rng: Random) -> Case:
    dim, period, count = rng.randint(1, 5), rng.randint(1, 2), rng.randint(1, 3)
    length = period * count
    outputs = range(0, length * rng.randint(1, 3), length)
    options = (
        f"input-dim={dim} input-period={period} output-period={length} "
        f"include-variance={rng.choice(['true', 'false'])}"
    )
    inputs = range(0, outputs.stop, period)
    return Case(f"type=StatisticsExtractionComponent {options}", dim, inputs, outputs)


def _pooling(rng: Random) -> Case:
    deviation, period = rng.randrange(2), rng.randint(1, 2)
    dim = 1 + rng.randint(1, 4) * (1 + deviation)
    left, right = (period * n for n in rng.choice([(0, 1), (1, 0), (2, 1), (3, 3)]))
    options = (
        f"input-dim={dim} input-period={period} left-context={left} right-context={right} "
        f"num-log-count-features={rng.randint(0, 2)} "
        f"output-stddevs={'true' if deviation else 'false'}"
    )
    frames = range(0, period * rng.randint(2, 7), period)
    outputs = frames[:: rng.randint(1, 2)]
    return Case(f"type=StatisticsPoolingComponent {options}", dim, frames, outputs)


def _distribute(rng: Random) -> Case:
    dim, options = groups(rng)
    times = _times(rng)
    descriptor = "ReplaceIndex(input, x, 0)"
    return Case(f"type=DistributeComponent {options}", dim, times, times, descriptor)


def _truncation(rng: Random) -> Case:
    dim, options = one_dim(rng, f"scale={rng.choice([1.0, 0.7])}")
    times = _times(rng)
    options += " clipping-threshold=1e4 zeroing-threshold=1e4"
    return Case(f"type=BackpropTruncationComponent {options}", dim, times, times)


WITH_INDEXES: dict[str, Callable[[Random], Case]] = {
    "BackpropTruncation": _truncation,
    "Distribute": _distribute,
    "RestrictedAttention": _attention,
    "StatisticsExtraction": _extraction,
    "StatisticsPooling": _pooling,
    "Tdnn": _tdnn,
    "TimeHeightConvolution": _time_height_convolution,
}
"""Component types that depend on indexes."""


def _times(rng: Random) -> range:
    """Times of outputs, often one."""
    start, step = rng.randint(-2, 2), rng.randint(1, 3)
    return range(start, start + step * rng.choice([1, 2, 5, 8]), step)


def _offsets(rng: Random) -> tuple[int, ...]:
    """Time offsets, ascending."""
    return tuple(sorted(rng.sample(range(-3, 4), rng.randint(1, 3))))


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def _reach(times: range, offsets: tuple[int, ...]) -> range:
    """All times from the first to the last that lie at an offset from one of `times`."""
    return range(times[0] + min(offsets), times[-1] + max(offsets) + 1)


TYPES = tuple(sorted([*ROW_BY_ROW, *WITH_INDEXES]))
"""All component types, without "Component" in their names."""


@attrs.frozen
class Drawn:
    """A random component of a type, for the sequences of a training computation."""

    case: Case
    nnet: Nnet
    sequences: int
    computation: NnetComputation

    @classmethod
    def of(cls, kind: str, seed: int, *, has_parameters: bool = False) -> Drawn:
        """Draws one; if asked to, until one has parameters."""
        rng = Random(seed)
        while True:
            case = random_case(kind, rng)
            nnet = case.nnet(seed)
            if nnet.num_parameters or not has_parameters:
                break
        sequences = rng.randint(1, 3)
        return cls(case, nnet, sequences, case.compile(nnet, sequences=sequences))


def random_case(kind: str, rng: Random) -> Case:
    """A component of a type."""
    if kind in WITH_INDEXES:
        return WITH_INDEXES[kind](rng)
    dim, options = ROW_BY_ROW[kind](rng)
    times = range(rng.choice([1, 2, 5]))
    return Case(f"type={kind}Component {options}", dim, times, times)
