"""Networks for other runtimes: nnet3-to-onnx, and nnet3-to-c."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import nnet3
import nnet3_descriptors
import nnet3_tables

from nnet3_tools import cli, streams

if TYPE_CHECKING:
    import numpy as np


OPSETS = 18, 21
"""The first and the last version of the operators."""


LARGE = 8_000_000
"""Bytes of a C source, mostly weights, that a compiler is busy with for long."""

RANDOM = 8, 300
"""The number of random utterances, and of frames of each."""


def start_path(path: Path) -> Path:
    """The path of the model of a stream's first chunks, beside that of the other chunks."""
    return path.with_name(f"{path.stem}.start{path.suffix}")


def _loaded(nnet_in: str) -> nnet3.Model:
    """The model of a folder, or of a file."""
    if os.path.isdir(nnet_in):
        return nnet3.load(nnet_in)
    return nnet3.Model(streams.read_nnet(nnet_in))


def _write(model: Any, path: str) -> None:
    with nnet3_tables.opened_to_write(path) as file:
        file.write(model.SerializeToString())
    sizes = {
        value.name: [each.dim_param or each.dim_value for each in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    least = _properties(model)["nnet3.least_onnxruntime"]
    cli.log(
        f"Wrote {path}, {len(model.graph.node)} nodes, for ONNX Runtime {least} or newer: "
        f"{json.dumps(sizes)}"
    )


def _properties(model: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def _quantized(models: tuple[Any, ...], features: str | None) -> list[Any]:
    """Returns models in 8 bits, and prints what that changes."""
    import nnet3_runtime_onnx

    quantized = [nnet3_runtime_onnx.quantized(model) for model in models]
    about = {key: int(text) for key, text in _properties(models[0]).items() if text.isdigit()}
    inputs, given = _inputs(about["nnet3.input_dim"], about["nnet3.ivector_dim"], features)
    error = nnet3_runtime_onnx.quantization_error(models, quantized, inputs)
    sizes = [sum(model.ByteSize() for model in each) for each in (models, quantized)]
    cli.log(f"8 bits: {sizes[1]:,} of {sizes[0]:,} bytes. For {given}: {error}")
    return quantized


def _log_chunk(frames: int | None, about: Mapping[str, str]) -> None:
    """Says that chunks have more frames than --frames, if the properties of a model say so."""
    chunk, factor = (
        int(about[f"nnet3.{name}"]) for name in ("frames_per_chunk", "frame_subsampling_factor")
    )
    if chunk != (frames or 0):
        cli.log(
            f"Chunks have {chunk} frames: --frames={frames} is no multiple of "
            f"--frame-subsampling-factor={factor} and of the frames after which the network's "
            "reads repeat"
        )


def _log_rounding(
    model: nnet3.Model, name: str, features: str | None, options: dict[str, Any]
) -> None:
    """Prints what weights in 8 bits change in the outputs of a C program."""
    import nnet3_runtime_c

    if nnet3_runtime_c.compiler() is None:
        cli.log("8 bits: there is no C compiler here (CC, cc) to measure what they change")
        return
    options = options | {"name": name, "weights_in_source": False, "sequences": 1}
    source, rounded = (nnet3.export_c(model, int8=each, **options) for each in (False, True))
    assert source.weights is not None
    assert rounded.weights is not None
    inputs, given = _inputs(model.input_dim, model.ivector_dim, features)
    error = nnet3_runtime_c.rounding_error(source, rounded, inputs)
    cli.log(
        f"8 bits: {len(rounded.weights):,} of {len(source.weights):,} bytes of weights. "
        f"For {given}: {error}"
    )


def _inputs(
    dim: int, ivector_dim: int, features: str | None
) -> tuple[Iterator[tuple[np.ndarray, np.ndarray | None]], str]:
    """Returns features and i-vectors to measure a change of outputs on, and words for them."""
    import numpy as np

    rng = np.random.default_rng(1)
    ivector = rng.standard_normal(ivector_dim, np.float32) if ivector_dim else None
    utterances = _random(dim) if features is None else _read(features)
    given = "random features" if features is None else features
    given += ", a random i-vector" if ivector_dim else ""
    return ((rows, ivector) for rows in utterances), given


def _random(dim: int) -> Iterator[np.ndarray]:
    import numpy as np

    count, frames = RANDOM
    for seed in range(count):
        yield np.random.default_rng(seed).standard_normal((frames, dim), np.float32)


def _read(rspecifier: str) -> Iterator[np.ndarray]:
    import numpy as np
    from nnet3_tables import read_table

    for _, rows in read_table(rspecifier):
        yield np.asarray(rows, np.float32)


def _number_option(
    name: str, text: str, *, least: int = 1, default: int | None, metavar: str = "FRAMES"
) -> Callable[[Any], Any]:
    """An option for a whole number."""
    return cli.option(
        name, default, text, metavar, shown=default is not None, type=click.IntRange(min=least)
    )


CONTEXT = (
    _number_option(
        "--frame-subsampling-factor",
        "Number of input frames for each row of output.  [default: for chunks what the folder of "
        "the model says, or 1]",
        default=None,
    ),
    _number_option(
        "--extra-left-context",
        "Further context to the left, for recurrent networks.",
        least=0,
        default=0,
    ),
    _number_option(
        "--extra-right-context",
        "Further context to the right, as --extra-left-context.",
        least=0,
        default=0,
    ),
)
"""The options of chunks."""

XVECTOR = cli.boolean_option("--xvector", "Compute one vector for all frames, the output at t = 0.")


FEATURES = cli.option(
    "--features",
    None,
    "With --int8: the features to measure this on; without it, random ones.",
    "RSPECIFIER",
)
"""The option of what changes are measured on."""


def _check_file(name: str) -> None:
    """Raises a UsageError if output of several files is to go to standard output or a command."""
    if streams.is_stream(name):
        raise click.UsageError(f"expected the name of a file, since others lie beside it: '{name}'")


@cli.tool(
    "nnet3-to-onnx",
    "NNET-IN ONNX-OUT",
    _number_option(
        "--frames",
        "Frames of a chunk, before subsampling and without context; rounded up to a multiple "
        "of --frame-subsampling-factor and of the network's modulus. Without it, the model takes "
        "whole utterances of any number of frames.",
        default=None,
    ),
    _number_option(
        "--sequences",
        "Number of sequences of the model; 0 for any number.",
        least=0,
        default=0,
        metavar="NUMBER",
    ),
    *CONTEXT,
    cli.boolean_option("--ivector", "Require that the network takes an i-vector."),
    cli.boolean_option(
        "--stream", "Write two models: for the first chunks, and for all later ones."
    ),
    XVECTOR,
    cli.option(
        "--opset",
        OPSETS[1],
        "The version of ONNX's operators. Older ones run in older versions of ONNX Runtime.",
        "VERSION",
        shown=True,
        type=click.IntRange(*OPSETS),
    ),
    cli.boolean_option(
        "--int8",
        "Quantize matrix products to 8 bits (ONNX Runtime's dynamic quantization), and print "
        "how much outputs change.",
    ),
    FEATURES,
)
def nnet3_to_onnx(
    *,
    nnet_in: str,
    onnx_out: str,
    frames: int | None,
    ivector: bool,
    int8: bool,
    features: str | None,
    **options: Any,
) -> None:
    """Write the network in NNET-IN, .raw, .mdl or a model's folder, as a model of ONNX to ONNX-OUT.

    The input of the model is (sequences, frames with context, columns), its output (sequences,
    frames, columns). An i-vector is (sequences, 1, columns). Batch-norm and dropout are in test
    mode. With --stream, ONNX-OUT is for one chunk after the other, and NAME.start.onnx beside
    NAME.onnx is for the first chunks. The outputs next_state.* of a call are the inputs state.* of
    the next one.
    """
    if features is not None and not int8:
        raise click.UsageError("--features is for --int8")
    if options["stream"]:
        _check_file(onnx_out)
    model = _loaded(nnet_in)
    if ivector and not model.ivector_dim:
        raise click.ClickException(f"--ivector: {nnet_in} has no input node 'ivector'")
    try:
        models = nnet3.export_onnx(model, frames=frames, **options)
    except nnet3_descriptors.Nnet3Error as error:
        raise click.ClickException(f"{nnet_in}: {error}") from error
    _log_chunk(frames, _properties(models[0]))
    written = _quantized(models, features) if int8 else models
    paths = [str(start_path(Path(onnx_out))), onnx_out][-len(models) :]
    for each, target in zip(written, paths, strict=True):
        _write(each, target)


@cli.tool(
    "nnet3-to-c",
    "NNET-IN C-OUT",
    _number_option(
        "--frames",
        "Frames of a chunk, before subsampling and without context; rounded up to a multiple "
        "of --frame-subsampling-factor and of the network's modulus.",
        default=50,
    ),
    _number_option("--sequences", "Number of sequences of a call.", default=1, metavar="NUMBER"),
    *CONTEXT,
    cli.boolean_option(
        "--stream", "Calls go on with the chunks of a stream; without it, each is for itself."
    ),
    XVECTOR,
    cli.option(
        "--weights",
        None,
        "Write the weights to a file, which the program hands over; without it, the source has "
        "them.",
        "FILE",
    ),
    cli.boolean_option(
        "--int8",
        "Quantize the weights of affine, linear and TDNN layers to 8 bits, and print how much "
        "outputs change, if there is a C compiler (CC).",
    ),
    FEATURES,
)
def nnet3_to_c(
    *,
    nnet_in: str,
    c_out: str,
    weights: str | None,
    int8: bool,
    features: str | None,
    **options: Any,
) -> None:
    """Write the network in NNET-IN as C99 source to C-OUT, with a header beside it.

    NNET-IN is a .raw or .mdl file, or the folder of a model.

    The files are NAME.c and NAME.h, where C-OUT is NAME.c or NAME.

    The source includes stdint.h, string.h and math.h alone, and allocates no memory. All names in
    it begin with NAME. Batch-norm and dropout are in test mode. Built with -DNNET3_MAIN it
    is a program that reads rows of float32 from standard input, a chunk with its context at a time,
    and writes the rows of the output to standard output.
    """
    if features is not None and not int8:
        raise click.UsageError("--features is for --int8")
    _check_file(c_out)
    if weights is not None:
        _check_file(weights)
    path = Path(c_out).with_suffix(".c")
    model = _loaded(nnet_in)
    try:
        source = nnet3.export_c(
            model, name=path.stem, weights_in_source=weights is None, int8=int8, **options
        )
        source.write(path.parent, weights)
        if int8:
            _log_rounding(model, path.stem, features, options)
    except nnet3_descriptors.Nnet3Error as error:
        raise click.ClickException(f"{nnet_in}: {error}") from error
    lines = [line.strip() for line in source.header.partition("*/")[0].splitlines()]
    calls = [line for line in lines if line.startswith("call ")]
    if not options["xvector"]:
        about = dict(line.split(": ", 1) for line in lines if line.startswith("nnet3."))
        _log_chunk(options["frames"], about)
    files = " and ".join([str(path.with_suffix(".h")), *([weights] if weights else [])])
    cli.log(f"Wrote {path}, with {files}: {'; '.join(calls)}")
    if (size := len(source.source)) > LARGE:
        cli.log(
            f"{path.name} has {size / 1e6:.0f} MB, mostly weights, which a compiler takes minutes "
            "for: --weights=FILE writes them to a file"
        )
