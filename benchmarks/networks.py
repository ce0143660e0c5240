"""Four networks of the usual kinds for nnet3, and requests for them.

    python benchmarks/networks.py tdnnf > nnet.config
    python benchmarks/networks.py tdnnf --scale 0.125     # hidden sizes divided by eight, for tests

============ ================================================================== ==========
name         network                                                            parameters
============ ================================================================== ==========
tdnnf        chain TDNN-F: 14 factorised layers 1536/160, two outputs of 6016   18.7 M
tdnn-lstm    six TDNN layers of 1024, three projected LSTMs, two outputs        39.5 M
xvector      five TDNN layers, statistics pooling, two embeddings of 512        7.1 M
cnn-tdnnf    six 2-d convolutions, nine TDNN-F layers 1024/128, two outputs     10.1 M
============ ================================================================== ==========
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest

os.environ.setdefault("NNET3_CACHE_DIR", "")  # compiling is timed, too

IVECTOR_DIM = 100
MAX_CHANGE = {"max-change": 0.75}
ORTHONORMAL = {"orthonormal-constraint": -1.0}


@attrs.define
class ConfigWriter:
    """Collects config lines. Methods that add a node return its name, for descriptors.

    Attributes:
        scale: Factor for the sizes given to `dim`.
        lines: The lines so far.
    """

    scale: float = 1.0
    lines: list[str] = attrs.field(factory=list)

    def dim(self, full: int) -> int:
        """A hidden size, scaled and rounded to a multiple of four."""
        return max(4, round(full * self.scale / 4) * 4)

    def input(self, name: str, dim: int) -> str:
        """Add an input node."""
        self.lines.append(f"input-node name={name} dim={dim}")
        return name

    def output(self, name: str, source: str) -> None:
        """Add an output node."""
        self.lines.append(f"output-node name={name} input={source} objective=linear")

    def dim_range(self, name: str, source: str, offset: int, dim: int) -> str:
        """Add a node for the columns offset ... offset + dim - 1 of a node."""
        self.lines.append(
            f"dim-range-node name={name} input-node={source} dim-offset={offset} dim={dim}"
        )
        return name

    def component(self, name: str, kind: str, descriptor: str, options: dict[str, object]) -> str:
        """Add a component of type `kind` + "Component" and the node of the same name."""
        written = " ".join(f"{key}={value}" for key, value in options.items())
        self.lines.append(f"component name={name} type={kind}Component {written}")
        self.lines.append(f"component-node name={name} component={name} input={descriptor}")
        return name

    def affine(self, name: str, descriptor: str, input_dim: int, output_dim: int) -> str:
        """Add an affine component with natural gradient."""
        dims = {"input-dim": input_dim, "output-dim": output_dim}
        return self.component(name, "NaturalGradientAffine", descriptor, dims | MAX_CHANGE)

    def linear(
        self, name: str, source: str, input_dim: int, output_dim: int, **options: object
    ) -> str:
        """Add a linear component under the orthonormal constraint."""
        dims = {"input-dim": input_dim, "output-dim": output_dim}
        return self.component(name, "Linear", source, dims | ORTHONORMAL | options)

    def relu_batchnorm(self, name: str, source: str, dim: int, block_dim: int | None = None) -> str:
        """Add a rectified linear component and a batch normalization."""
        dims = {"dim": dim} if block_dim is None else {"dim": dim, "block-dim": block_dim}
        relu = self.component(
            f"{name}.relu", "RectifiedLinear", source, dims | {"self-repair-scale": "1e-05"}
        )
        return self.component(f"{name}.batchnorm", "BatchNorm", relu, dims | {"target-rms": 1.0})

    def log_softmax(self, name: str, source: str, dim: int) -> str:
        """Add a log-softmax component."""
        return self.component(name, "LogSoftmax", source, {"dim": dim})


def spliced(source: str, offsets: Iterable[int]) -> str:
    """The source at several time offsets, as the arguments of an Append."""
    return ", ".join(f"Offset({source}, {t})" if t else source for t in offsets)


def write_features(config: ConfigWriter) -> None:
    """Inputs of a speech recogniser: an i-vector and 40 features a frame."""
    config.input("ivector", IVECTOR_DIM)
    config.input("input", 40)


def write_tdnnf_layer(
    config: ConfigWriter, name: str, source: str, dim: int, bottleneck: int, stride: int
) -> str:
    """A factorised TDNN layer with bypass; with stride 0 it reads only its own frame."""
    if stride:
        down = {"input-dim": dim, "output-dim": bottleneck, "time-offsets": f"-{stride},0"}
        up = {"input-dim": bottleneck, "output-dim": dim, "time-offsets": f"0,{stride}"}
        linear = config.component(
            f"{name}.linear",
            "Tdnn",
            source,
            down | {"use-bias": "false"} | ORTHONORMAL | MAX_CHANGE,
        )
        affine = config.component(f"{name}.affine", "Tdnn", linear, up | MAX_CHANGE)
    else:
        linear = config.linear(f"{name}.linear", source, dim, bottleneck, **MAX_CHANGE)
        affine = config.affine(f"{name}.affine", linear, bottleneck, dim)
    batchnorm = config.relu_batchnorm(name, affine, dim)
    bypass = f"Sum(Scale(0.66, {source}), {batchnorm})"
    return config.component(f"{name}.noop", "NoOp", bypass, {"dim": dim})


def write_tdnnf_layers(
    config: ConfigWriter, source: str, dim: int, bottleneck: int, strides: Iterable[int]
) -> str:
    """Layers tdnnf2, tdnnf3, ... with these strides."""
    for number, stride in enumerate(strides, 2):
        source = write_tdnnf_layer(config, f"tdnnf{number}", source, dim, bottleneck, stride)
    return source


def write_chain_outputs(
    config: ConfigWriter, source: str, dim: int, small: int, targets: int
) -> None:
    """The two outputs of a chain network, each after its own layer."""
    shared = config.linear("prefinal-l", source, dim, small)
    for branch, output in (("chain", "output"), ("xent", "output-xent")):
        prefinal = f"prefinal-{branch}"
        affine = config.affine(f"{prefinal}.affine", shared, small, dim)
        batchnorm = config.relu_batchnorm(f"{prefinal}.1", affine, dim)
        linear = config.linear(f"{prefinal}.linear", batchnorm, dim, small)
        batchnorm = config.component(
            f"{prefinal}.2.batchnorm", "BatchNorm", linear, {"dim": small, "target-rms": 1.0}
        )
        write_output(config, output, batchnorm, small, targets)


def write_output(config: ConfigWriter, output: str, source: str, dim: int, targets: int) -> None:
    """A last affine layer and its output; log-probabilities for the cross-entropy output."""
    last = config.affine(f"{output}.affine", source, dim, targets)
    if output == "output-xent":
        last = config.log_softmax(f"{output}.log-softmax", last, targets)
    config.output(output, last)


def write_tdnnf(config: ConfigWriter) -> None:
    """A chain TDNN-F."""
    dim, bottleneck, small, targets = map(config.dim, (1536, 160, 256, 6016))
    write_features(config)
    spliced_input = f"Append({spliced('input', (-1, 0, 1))}, ReplaceIndex(ivector, t, 0))"
    affine = config.affine("tdnn1.affine", spliced_input, 3 * 40 + IVECTOR_DIM, dim)
    source = config.relu_batchnorm("tdnn1", affine, dim)
    source = write_tdnnf_layers(config, source, dim, bottleneck, [1, 1, 1, 0] + [3] * 10)
    write_chain_outputs(config, source, dim, small, targets)


def write_cnn_tdnnf(config: ConfigWriter) -> None:
    """Convolutions over time and frequency below a TDNN-F."""
    write_features(config)
    source, height, channels = "input", 40, 1
    # Filters and height of each layer's output; the height is halved where it changes.
    shapes = [(64, 40), (64, 40), (128, 20), (128, 20), (256, 10), (256, 10)]
    for number, (filters, new_height) in enumerate(shapes, 1):
        filters = config.dim(filters)
        options = {
            "num-filters-in": channels,
            "num-filters-out": filters,
            "height-in": height,
            "height-out": new_height,
            "height-subsample-out": height // new_height,
            "height-offsets": "-1,0,1",
            "time-offsets": "-1,0,1",
            "required-time-offsets": 0,
            "max-change": 0.25,
        }
        name = f"cnn{number}"
        convolution = config.component(f"{name}.conv", "TimeHeightConvolution", source, options)
        source = config.relu_batchnorm(name, convolution, filters * new_height, filters)
        height, channels = new_height, filters
    dim, bottleneck, small, targets = map(config.dim, (1024, 128, 192, 2016))
    with_ivector = f"Append({source}, ReplaceIndex(ivector, t, 0))"
    affine = config.affine("tdnn1.affine", with_ivector, height * channels + IVECTOR_DIM, dim)
    source = config.relu_batchnorm("tdnn1", affine, dim)
    source = write_tdnnf_layers(config, source, dim, bottleneck, [0] + [3] * 8)
    write_chain_outputs(config, source, dim, small, targets)


def write_lstmp(config: ConfigWriter, name: str, source: str, input_dim: int) -> tuple[str, int]:
    """A projected LSTM with delay 3; returns its node and dimension."""
    cell, recurrent, delay = config.dim(1024), config.dim(256), 3
    projected = 2 * recurrent
    gates = config.affine(
        f"{name}.W_all",
        f"Append({source}, IfDefined(Offset({name}.r_trunc, -{delay})))",
        input_dim + recurrent,
        4 * cell,
    )
    nonlinearity = config.component(
        f"{name}.lstm_nonlin",
        "LstmNonlinearity",
        f"Append({gates}, IfDefined(Offset({name}.c_trunc, -{delay})))",
        {"cell-dim": cell, "use-dropout": "false"},
    )
    cell_state = config.dim_range(f"{name}.c", nonlinearity, 0, cell)
    cell_output = config.dim_range(f"{name}.m", nonlinearity, cell, cell)
    projection = config.affine(f"{name}.rp", cell_output, cell, projected)
    recurrence = config.dim_range(f"{name}.r", projection, 0, recurrent)
    truncation = config.component(
        f"{name}.cr_trunc",
        "BackpropTruncation",
        f"Append({cell_state}, {recurrence})",
        {
            "dim": cell + recurrent,
            "scale": 1.0,
            "clipping-threshold": 30.0,
            "zeroing-threshold": 15.0,
            "zeroing-interval": 20,
            "recurrence-interval": delay,
        },
    )
    config.dim_range(f"{name}.c_trunc", truncation, 0, cell)
    config.dim_range(f"{name}.r_trunc", truncation, cell, recurrent)
    return projection, projected


def write_tdnn_lstm(config: ConfigWriter) -> None:
    """TDNN layers with a projected LSTM after every second one."""
    width, targets = config.dim(1024), config.dim(6016)
    write_features(config)
    spliced_input = f"Append({spliced('input', range(-2, 3))}, ReplaceIndex(ivector, t, 0))"
    affine = config.affine("tdnn1.affine", spliced_input, 5 * 40 + IVECTOR_DIM, width)
    source, dim = config.relu_batchnorm("tdnn1", affine, width), width
    number = 2
    for spacing in (1, 3, 3):
        for _ in range(2):
            offsets = (-spacing, 0, spacing)
            name = f"tdnn{number}"
            affine = config.affine(
                f"{name}.affine", f"Append({spliced(source, offsets)})", 3 * dim, width
            )
            source, dim = config.relu_batchnorm(name, affine, width), width
            number += 1
        source, dim = write_lstmp(config, f"lstm{number}", source, dim)
    for output in ("output", "output-xent"):
        write_output(config, output, source, dim, targets)


def write_xvector(config: ConfigWriter) -> None:
    """A speaker classifier: frame layers, pooling over the segment, then segment layers."""
    narrow, wide, speakers = map(config.dim, (512, 1500, 5140))
    source, dim = config.input("input", 24), 24
    layers = [(range(-2, 3), narrow), ((-2, 0, 2), narrow), ((-3, 0, 3), narrow)]
    for number, (offsets, size) in enumerate([*layers, ((0,), narrow), ((0,), wide)], 1):
        descriptor = f"Append({spliced(source, offsets)})" if len(offsets) > 1 else source
        affine = config.affine(f"tdnn{number}.affine", descriptor, dim * len(offsets), size)
        source, dim = config.relu_batchnorm(f"tdnn{number}", affine, size), size
    extraction = {"input-period": 1, "output-period": 1, "include-variance": "true"}
    statistics = config.component(
        "stats.extract", "StatisticsExtraction", source, {"input-dim": dim} | extraction
    )
    pooling = {
        "input-dim": 2 * dim + 1,
        "input-period": 1,
        "left-context": 0,
        "right-context": 10000,
        "num-log-count-features": 0,
        "output-stddevs": "true",
    }
    pooled = config.component("stats.pool", "StatisticsPooling", statistics, pooling)
    source, dim = f"Round({pooled}, 1)", 2 * dim
    for name in ("embedding1", "embedding2"):
        affine = config.affine(f"{name}.affine", source, dim, narrow)
        source, dim = config.relu_batchnorm(name, affine, narrow), narrow
    affine = config.affine("output.affine", source, dim, speakers)
    config.output("output", config.log_softmax("output.log-softmax", affine, speakers))


@attrs.frozen(kw_only=True)
class Benchmark:
    """A network and the shape of its requests.

    Attributes:
        write: Writes its config.
        input_times: Input frames of each sequence.
        output_times: Output frames of each sequence.
        has_ivector: Whether an i-vector at t = 0 is an input, too.
        outputs: Names of its outputs; inference needs only the first.
    """

    write: Callable[[ConfigWriter], None]
    input_times: range
    output_times: range
    has_ivector: bool = True
    outputs: tuple[str, ...] = ("output", "output-xent")

    def config(self, scale: float = 1.0) -> str:
        """The network as config lines, its hidden sizes multiplied by `scale`."""
        writer = ConfigWriter(scale)
        self.write(writer)
        return "\n".join(writer.lines) + "\n"

    def request(self, sequences: int, *, train: bool) -> ComputationRequest:
        """The request for `sequences` sequences.

        For training, it asks for all outputs with derivatives, the model derivative and statistics;
        for inference, for the first output.
        """
        # Imported here, so that the config alone can be written without the packages.
        from nnet3_computation import ComputationRequest, IoSpecification

        def specification(name: str, times: range, has_deriv: bool = False) -> IoSpecification:
            return IoSpecification.from_range(
                name,
                times.start,
                times.stop,
                sequences,
                t_step=times.step,
                has_deriv=has_deriv,
            )

        inputs = [specification("input", self.input_times)]
        if self.has_ivector:
            inputs.append(specification("ivector", range(1)))
        outputs = self.outputs if train else self.outputs[:1]
        return ComputationRequest(
            inputs=tuple(inputs),
            outputs=tuple(specification(name, self.output_times, train) for name in outputs),
            need_model_derivative=train,
            store_component_stats=train,
        )


CHAIN_OUTPUT_TIMES = range(0, 150, 3)

BENCHMARKS = {
    "cnn-tdnnf": Benchmark(
        write=write_cnn_tdnnf, input_times=range(-24, 174), output_times=CHAIN_OUTPUT_TIMES
    ),
    "tdnn-lstm": Benchmark(
        write=write_tdnn_lstm, input_times=range(-56, 166), output_times=CHAIN_OUTPUT_TIMES
    ),
    "tdnnf": Benchmark(
        write=write_tdnnf, input_times=range(-34, 184), output_times=CHAIN_OUTPUT_TIMES
    ),
    "xvector": Benchmark(
        write=write_xvector,
        input_times=range(300),
        output_times=range(1),
        has_ivector=False,
        outputs=("output",),
    ),
}


def main() -> None:
    """Print the config of the network that the command line names."""
    parser = argparse.ArgumentParser(description="Print the config of a benchmark network.")
    parser.add_argument("network", choices=BENCHMARKS)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the hidden sizes")
    arguments = parser.parse_args()
    print(BENCHMARKS[arguments.network].config(arguments.scale), end="")


if __name__ == "__main__":
    main()
