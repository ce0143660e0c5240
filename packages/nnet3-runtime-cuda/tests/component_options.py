"""Random settings of the component types that map rows to rows of the same index."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Options = tuple[int, str]
"""Number of columns of the input, and the text of a config line after the type."""


def some(rng: Random, *flags: str) -> str:
    """A random choice of the options."""
    return " ".join(flag for flag in flags if rng.randrange(2))


def _with(options: Options, more: str) -> Options:
    """The options with more at the end."""
    return options[0], f"{options[1]} {more}"


def _blocks(rng: Random) -> Options:
    """A number of columns, and the options 'dim' and perhaps 'block-dim'."""
    block, count = rng.randint(2, 5), rng.randint(1, 3)
    return block * count, f"dim={block * count} " + f"block-dim={block}" * (count > 1)


def matrix_map(rng: Random) -> Options:
    """A number of columns, and the options 'input-dim' and 'output-dim'."""
    dim = rng.randint(1, 9)
    return dim, f"input-dim={dim} output-dim={rng.randint(1, 9)}"


def groups(rng: Random) -> Options:
    """As `matrix_map`, where input-dim is a multiple of output-dim."""
    out, count = rng.randint(1, 4), rng.randint(2, 4)
    return out * count, f"input-dim={out * count} output-dim={out}"


def _repeats(rng: Random, key: str) -> Options:
    """As `matrix_map`, where both are multiples of a number of blocks."""
    count, into, out = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
    return into * count, f"input-dim={into * count} output-dim={out * count} {key}={count}"


def one_dim(rng: Random, options: str = "") -> Options:
    """A number of columns, and the option 'dim'."""
    dim = rng.randint(1, 8)
    return dim, f"dim={dim} {options}"


def _dropout(rng: Random) -> Options:
    proportion = rng.choice([0.0, 0.3, 0.8])
    return one_dim(rng, f"dropout-proportion={proportion} {some(rng, 'dropout-per-frame=true')}")


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
    return one_dim(rng, f"param-stddev=0.5 rank={rng.randint(1, 4)}")


def _scale_and_offset(rng: Random) -> Options:
    dim, options = _blocks(rng)
    return dim, f"{options} {some(rng, 'use-natural-gradient=false')}"


def _normalize(rng: Random) -> Options:
    dim, options = _blocks(rng)
    options = options.replace("dim=", "input-dim=", 1)
    return dim, f"{options} target-rms={rng.choice([0.5, 2])} {some(rng, 'add-log-stddev=true')}"


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
    """For each axis: a size, the size of a window, and a step that divides the rest."""
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
    natural = some(rng, "use-natural-gradient=false")
    return dim, f"output-dim={dim} output-stddev=1 {natural}"


def _constant_function(rng: Random) -> Options:
    dim, options = matrix_map(rng)
    return dim, f"{options} output-stddev=1 {some(rng, 'is-updatable=false')}"


def _mask(rng: Random) -> Options:
    dim = rng.randint(1, 4)
    return dim, f"output-dim={dim} {some(rng, 'continuous=true')}"


ROW_BY_ROW: dict[str, Callable[[Random], Options]] = {
    "Affine": matrix_map,
    "BatchNorm": _batch_norm,
    "BlockAffine": lambda rng: _repeats(rng, "num-blocks"),
    "ClipGradient": lambda rng: one_dim(
        rng, f"clipping-threshold=1e4 {some(rng, 'norm-based-clipping=true')}"
    ),
    "Composite": _composite,
    "Constant": _constant,
    "ConstantFunction": _constant_function,
    "Convolution": _convolution,
    "Dropout": _dropout,
    "DropoutMask": _mask,
    "ElementwiseProduct": groups,
    "FixedAffine": matrix_map,
    "FixedBias": one_dim,
    "FixedScale": one_dim,
    "GeneralDropout": _general_dropout,
    "GruNonlinearity": _gru,
    "Linear": matrix_map,
    "LogSoftmax": one_dim,
    "LstmNonlinearity": _lstm,
    "Maxpooling": _maxpooling,
    "NaturalGradientAffine": matrix_map,
    "NaturalGradientPerElementScale": _natural_scale,
    "NaturalGradientRepeatedAffine": lambda rng: _repeats(rng, "num-repeats"),
    "NoOp": one_dim,
    "Normalize": _normalize,
    "OutputGruNonlinearity": _output_gru,
    "PerElementOffset": lambda rng: _with(_blocks(rng), "param-stddev=1"),
    "PerElementScale": lambda rng: one_dim(rng, "param-stddev=1"),
    "Permute": _permutation,
    "Pnorm": groups,
    "RectifiedLinear": _blocks,
    "RepeatedAffine": lambda rng: _repeats(rng, "num-repeats"),
    "ScaleAndOffset": _scale_and_offset,
    "Sigmoid": one_dim,
    "Softmax": one_dim,
    "SpecAugmentTimeMask": lambda rng: one_dim(rng, "zeroed-proportion=0.4"),
    "SumBlock": lambda rng: _with(groups(rng), f"scale={rng.choice([0.5, 1])}"),
    "SumGroup": _sizes,
    "Tanh": one_dim,
}
"""Component types that map rows to rows of the same index."""
