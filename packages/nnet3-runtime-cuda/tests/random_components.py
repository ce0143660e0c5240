"""Components of every type with random configurations, and times at which they can be run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from computations import Case

Options = tuple[int, str]
"""Number of columns of the input, and what a config line has behind the type."""


def _some(rng: Random, *flags: str) -> str:
    """Some of the options."""
    return " ".join(flag for flag in flags if rng.randrange(2))


def _with(options: Options, more: str) -> Options:
    """Further options."""
    return options[0], f"{options[1]} {more}"


def _blocks(rng: Random) -> Options:
    """A number of columns, and the options 'dim' and perhaps 'block-dim'."""
    block, count = rng.randint(2, 5), rng.randint(1, 3)
    return block * count, f"dim={block * count} " + f"block-dim={block}" * (count > 1)


def _map(rng: Random) -> Options:
    """A number of columns, and the options 'input-dim' and 'output-dim'."""
    dim = rng.randint(1, 9)
    return dim, f"input-dim={dim} output-dim={rng.randint(1, 9)}"


def _groups(rng: Random) -> Options:
    """The same, where the first is a multiple of the second."""
    out, count = rng.randint(1, 4), rng.randint(2, 4)
    return out * count, f"input-dim={out * count} output-dim={out}"


def _repeats(rng: Random, key: str) -> Options:
    """The same, where both are multiples of a number of blocks."""
    count, into, out = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
    return into * count, f"input-dim={into * count} output-dim={out * count} {key}={count}"


def _one_dim(rng: Random, options: str = "") -> Options:
    """A number of columns, and the option 'dim'."""
    dim = rng.randint(1, 8)
    return dim, f"dim={dim} {options}"


def _dropout(rng: Random) -> Options:
    proportion = rng.choice([0.0, 0.3, 0.8])
    return _one_dim(rng, f"dropout-proportion={proportion} {_some(rng, 'dropout-per-frame=true')}")


def _general_dropout(rng: Random) -> Options:
    dim, options = _blocks(rng)
    kind = rng.choice(
        [
            "dropout-proportion=0.4",
            "dropout-proportion=0.4 continuous=true",
            "specaugment-max-proportion=0.5 specaugment-max-regions=2",
        ]
    )
    return dim, f"{options} {kind} time-period={rng.choice([0, 2])}"


def _natural_scale(rng: Random) -> Options:
    return _one_dim(rng, f"param-stddev=0.5 rank={rng.randint(1, 4)}")


def _scale_and_offset(rng: Random) -> Options:
    dim, options = _blocks(rng)
    return dim, f"{options} {_some(rng, 'use-natural-gradient=false')}"


def _normalize(rng: Random) -> Options:
    dim, options = _blocks(rng)
    options = options.replace("dim=", "input-dim=", 1)
    return dim, f"{options} target-rms={rng.choice([0.5, 2])} {_some(rng, 'add-log-stddev=true')}"


def _batch_norm(rng: Random) -> Options:
    dim, options = _blocks(rng)
    return dim, f"{options} target-rms={rng.choice([0.5, 2])} epsilon={rng.choice([0.001, 0.5])}"


def _sizes(rng: Random) -> Options:
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
    return sum(sizes), "sizes=" + ",".join(map(str, sizes))


def _permutation(rng: Random) -> Options:
    dim = rng.randint(1, 7)
    return dim, "column-map=" + ",".join(map(str, rng.sample(range(dim), dim)))


def _windows(rng: Random, axes: str) -> dict[str, tuple[int, int, int]]:
    """For each axis a size, the size of a window, and a step that divides what is left."""
    windows = {}
    for axis in axes:
        window, step = rng.randint(1, 3), rng.randint(1, 2)
        step = min(step, window)
        windows[axis] = window + step * rng.randint(0, 2), window, step
    return windows


def _convolution(rng: Random) -> Options:
    z = rng.randint(1, 3)
    windows = _windows(rng, "xy")
    options = " ".join(
        f"input-{a}-dim={size} filt-{a}-dim={window} filt-{a}-step={step}"
        for a, (size, window, step) in windows.items()
    )
    order = rng.choice(["zyx", "yzx"])
    options += f" input-z-dim={z} num-filters={rng.randint(1, 4)} input-vectorization-order={order}"
    return windows["x"][0] * windows["y"][0] * z, options


def _maxpooling(rng: Random) -> Options:
    windows = _windows(rng, "xyz")
    options = " ".join(
        f"input-{a}-dim={size} pool-{a}-size={window} pool-{a}-step={step}"
        for a, (size, window, step) in windows.items()
    )
    return windows["x"][0] * windows["y"][0] * windows["z"][0], options


def _lstm(rng: Random) -> Options:
    cell, dropout = rng.randint(1, 5), rng.randrange(2)
    flag = "true" if dropout else "false"
    options = f"cell-dim={cell} self-repair-scale=0 use-dropout={flag}"
    return 5 * cell + 3 * dropout, options


def _gru(rng: Random) -> Options:
    cell, recurrent = rng.randint(2, 5), rng.randint(1, 5)
    if recurrent >= cell:
        return 4 * cell, f"cell-dim={cell} self-repair-scale=0"
    options = f"cell-dim={cell} recurrent-dim={recurrent} self-repair-scale=0"
    return 3 * cell + 2 * recurrent, options


def _output_gru(rng: Random) -> Options:
    cell = rng.randint(1, 5)
    return 3 * cell, f"cell-dim={cell} rank={rng.randint(1, 3)} self-repair-scale=0"


def _composite(rng: Random) -> Options:
    first, hidden, last = (rng.randint(1, 5) for _ in range(3))
    middle = rng.choice(["Tanh", "Sigmoid", "RectifiedLinear", "BatchNorm"])
    return first, (
        f"num-components=3 max-rows-process={rng.choice([0, 3, 5])} "
        f"component1='type=AffineComponent input-dim={first} output-dim={hidden}' "
        f"component2='type={middle}Component dim={hidden}' "
        f"component3='type=LinearComponent input-dim={hidden} output-dim={last}'"
    )


def _constant(rng: Random) -> Options:
    dim = rng.randint(1, 5)
    natural = _some(rng, "use-natural-gradient=false")
    return dim, f"output-dim={dim} output-stddev=1 {natural}"


def _constant_function(rng: Random) -> Options:
    dim, options = _map(rng)
    return dim, f"{options} output-stddev=1 {_some(rng, 'is-updatable=false')}"


def _mask(rng: Random) -> Options:
    dim = rng.randint(1, 4)
    return dim, f"output-dim={dim} {_some(rng, 'continuous=true')}"


ROW_BY_ROW: dict[str, Callable[[Random], Options]] = {
    "Affine": _map,
    "BatchNorm": _batch_norm,
    "BlockAffine": lambda rng: _repeats(rng, "num-blocks"),
    "ClipGradient": lambda rng: _one_dim(
        rng, f"clipping-threshold=1e4 {_some(rng, 'norm-based-clipping=true')}"
    ),
    "Composite": _composite,
    "Constant": _constant,
    "ConstantFunction": _constant_function,
    "Convolution": _convolution,
    "Dropout": _dropout,
    "DropoutMask": _mask,
    "ElementwiseProduct": _groups,
    "FixedAffine": _map,
    "FixedBias": _one_dim,
    "FixedScale": _one_dim,
    "GeneralDropout": _general_dropout,
    "GruNonlinearity": _gru,
    "Linear": _map,
    "LogSoftmax": _one_dim,
    "LstmNonlinearity": _lstm,
    "Maxpooling": _maxpooling,
    "NaturalGradientAffine": _map,
    "NaturalGradientPerElementScale": _natural_scale,
    "NaturalGradientRepeatedAffine": lambda rng: _repeats(rng, "num-repeats"),
    "NoOp": _one_dim,
    "Normalize": _normalize,
    "OutputGruNonlinearity": _output_gru,
    "PerElementOffset": lambda rng: _with(_blocks(rng), "param-stddev=1"),
    "PerElementScale": lambda rng: _one_dim(rng, "param-stddev=1"),
    "Permute": _permutation,
    "Pnorm": _groups,
    "RectifiedLinear": _blocks,
    "RepeatedAffine": lambda rng: _repeats(rng, "num-repeats"),
    "ScaleAndOffset": _scale_and_offset,
    "Sigmoid": _one_dim,
    "Softmax": _one_dim,
    "SpecAugmentTimeMask": lambda rng: _one_dim(rng, "zeroed-proportion=0.4"),
    "SumBlock": lambda rng: _with(_groups(rng), f"scale={rng.choice([0.5, 1])}"),
    "SumGroup": _sizes,
    "Tanh": _one_dim,
}
"""Component types that map rows to rows of the same index."""


def _tdnn(rng: Random) -> Case:
    dim, options = _map(rng)
    offsets, outputs = _offsets(rng), _times(rng)
    options += f" time-offsets={_listed(offsets)} {_some(rng, 'use-bias=false')}"
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
    dim, options = _groups(rng)
    times = _times(rng)
    descriptor = "ReplaceIndex(input, x, 0)"
    return Case(f"type=DistributeComponent {options}", dim, times, times, descriptor)


def _truncation(rng: Random) -> Case:
    dim, options = _one_dim(rng, f"scale={rng.choice([1.0, 0.7])}")
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
"""Component types that look at indexes."""


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
    """All times from the first to the last that lie at offsets from these."""
    return range(times[0] + min(offsets), times[-1] + max(offsets) + 1)


TYPES = tuple(sorted([*ROW_BY_ROW, *WITH_INDEXES]))
"""All component types, without the "Component" at the end of their names."""


def random_case(kind: str, rng: Random) -> Case:
    """A component of a type."""
    if kind in WITH_INDEXES:
        return WITH_INDEXES[kind](rng)
    dim, options = ROW_BY_ROW[kind](rng)
    times = range(rng.choice([1, 2, 5]))
    return Case(f"type={kind}Component {options}", dim, times, times)
