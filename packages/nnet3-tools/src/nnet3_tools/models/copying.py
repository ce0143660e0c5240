"""Tools that make, change, copy and average networks and acoustic models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
import nnet3_descriptors
from nnet3_descriptors import editing

from nnet3_tools import cli, flags, streams

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def _with_config(nnet: Nnet, name: str) -> Nnet:
    """The network with the nodes and components of a file; "" for none."""
    if not name:
        return nnet
    text = streams.read_text(name)
    with streams.understanding(name):
        return nnet3_descriptors.parse_config(text, nnet)


def _edited(nnet: Nnet, edits: str) -> Nnet:
    """The network after edit directives, each on a line."""
    if not edits:
        return nnet
    with cli.logged("nnet3_descriptors.editing"):
        return editing.apply_edits(nnet, edits)


def _edited_by_file(nnet: Nnet, name: str) -> Nnet:
    """The network after the edit directives of a file; "" for none."""
    text = streams.read_text(name) if name else ""
    with streams.understanding(name):
        return _edited(nnet, text)


def _prepared(nnet: Nnet, is_wanted: bool) -> Nnet:
    """The network in test mode, with components collapsed; as it is, if that is not wanted."""
    if not is_wanted:
        return nnet
    # Kaldi's tools leave dropout and batch-norm in place.
    options = editing.CollapseOptions(dropout=False, batchnorm=False)
    return editing.collapse_model(nnet3_descriptors.set_test_mode(nnet), options)


_CHANGES: dict[str, Callable[[Nnet, Any], Nnet]] = {
    "nnet_config": _with_config,
    "edits_config": _edited_by_file,
    "edits": lambda nnet, edits: _edited(nnet, edits.replace(";", "\n")),
    "learning_rate": lambda nnet, rate: nnet if rate < 0 else editing.set_learning_rate(nnet, rate),
    "scale": lambda nnet, factor: nnet if factor == 1.0 else editing.scale(nnet, factor),
    "prepare_for_test": _prepared,
}
"""What each of the options `MODEL_CHANGES` does with a network."""


def _changed(nnet: Nnet, options: Mapping[str, Any], *names: str) -> Nnet:
    """The network after the changes of some options, in this order."""
    for name in names:
        nnet = _CHANGES[name](nnet, options[name])
    return nnet


MODEL_CHANGES = (
    cli.option("--nnet-config", "", "Config lines to add.", "FILE"),
    cli.option("--edits-config", "", "Edit directives, one on each line.", "FILE"),
    cli.option("--edits", "", "Edit directives, separated by ';'.", "EDITS"),
    cli.option("--learning-rate", -1.0, "Learning rate to set, if >= 0.", "RATE"),
    cli.option("--scale", 1.0, "Multiplies the parameters.", "FACTOR"),
    cli.boolean_option(
        "--prepare-for-test",
        "Set the test mode of batch-norm and dropout; fold components into others.",
    ),
)
_SEEDS = 2**32
"""Seeds are unsigned; as in C, a negative one counts from the largest down."""


@cli.tool(
    "nnet3-init",
    "",
    click.argument("names", metavar="[NNET-IN] CONFIG NNET-OUT", nargs=-1),
    flags.BINARY,
    cli.option("--srand", 0, "Seed of the initial parameters.", "SEED"),
)
def nnet3_init(names: tuple[str, ...], binary: bool, srand: int) -> None:
    """Make a network from the lines of CONFIG, or add them to NNET-IN.

    A file may be "-", "command |" or "| command".
    """
    import numpy as np

    if len(names) not in (2, 3):
        raise cli.ArgumentCountError(f"expected two or three files, got {len(names)}")
    *base_names, config_name, output_name = names
    base = None
    for base_name in base_names:
        base = streams.read_nnet(base_name)
        cli.log(f"Read raw neural net from {base_name}")
    text, rng = streams.read_text(config_name), np.random.default_rng(srand % _SEEDS)
    with streams.understanding(config_name):
        nnet = nnet3_descriptors.parse_config(text, base, rng=rng)
    streams.write_nnet(nnet, output_name, binary=binary)
    cli.log(f"Initialized raw neural net and wrote it to {output_name}")


def _with_batchnorm_test_mode(nnet: Nnet, on: bool) -> Nnet:
    from nnet3_descriptors.components import BatchNormComponent  # with all other types

    return nnet.with_components(
        {
            name: component.with_test_mode(on)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
            if isinstance(component, BatchNormComponent)
        }
    )


@cli.tool(
    "nnet3-copy",
    "NNET-IN NNET-OUT",
    flags.BINARY,
    *MODEL_CHANGES,
    cli.boolean_option(
        "--batchnorm-test-mode",
        "Test mode of batch-norm components, unless --prepare-for-test sets it.",
    ),
)
def nnet3_copy(
    nnet_in: str, nnet_out: str, binary: bool, batchnorm_test_mode: bool, **options: Any
) -> None:
    """Copy the network in NNET-IN, .raw or .mdl, to NNET-OUT, a .raw file.

    The options apply in this order: --nnet-config, --learning-rate, --scale, --edits-config,
    --edits, --prepare-for-test. A file may be "-", "command |" or "| command".
    """
    order = "nnet_config", "learning_rate", "scale", "edits_config", "edits", "prepare_for_test"
    nnet = _changed(streams.read_nnet(nnet_in), options, *order)
    if not options["prepare_for_test"]:
        nnet = _with_batchnorm_test_mode(nnet, batchnorm_test_mode)
    streams.write_nnet(nnet, nnet_out, binary=binary)
    cli.log(f"Copied raw neural net from {nnet_in} to {nnet_out}")


@cli.tool(
    "nnet3-am-copy",
    "MODEL-IN MODEL-OUT",
    flags.BINARY_MODEL,
    cli.boolean_option("--raw", "Write the network only, a .raw file."),
    cli.option("--set-raw-nnet", "", "Take the network from this .raw file.", "NNET"),
    cli.boolean_option(
        "--convert-repeated-to-block", "Make repeated affine components block-affine ones."
    ),
    *MODEL_CHANGES,
)
def nnet3_am_copy(
    model_in: str,
    model_out: str,
    binary: bool,
    raw: bool,
    set_raw_nnet: str,
    convert_repeated_to_block: bool,
    **options: Any,
) -> None:
    """Copy the acoustic model MODEL-IN, a .mdl file, to MODEL-OUT.

    The options apply in this order: --set-raw-nnet, --nnet-config, --convert-repeated-to-block,
    --learning-rate, --edits-config, --edits, --scale, --prepare-for-test. The context is computed
    again, and priors that no longer fit are removed. A file may be "-", "command |" or "| command".
    """
    import nnet3_graph

    model = streams.read(nnet3_descriptors.read_acoustic_model, model_in)
    nnet = model.nnet
    if set_raw_nnet:
        nnet = streams.read_nnet(set_raw_nnet)
    nnet = _changed(nnet, options, "nnet_config")
    if convert_repeated_to_block:
        nnet = editing.convert_repeated_to_block(nnet)
    order = "learning_rate", "edits_config", "edits", "scale", "prepare_for_test"
    nnet = _changed(nnet, options, *order)
    changed = model.with_nnet(nnet, context=nnet3_graph.compute_context(nnet))
    if changed.priors.size != model.priors.size:
        cli.warn(
            f"Removing priors, of which there are {model.priors.size}: the "
            f"output of the network now has dimension {changed.nnet.node_dim('output')}"
        )
    if raw:
        streams.write_nnet(changed.nnet, model_out, binary=binary)
    else:
        streams.write_acoustic_model(changed, model_out, binary=binary)
    form = "to raw format as" if raw else "to"
    cli.log(f"Copied neural net from {model_in} {form} {model_out}")


_TOLERANCE = 0.01


def _normalized_weights(text: str, count: int) -> list[float]:
    """Returns weights that add up to 1, from "w1:w2:..." or, if that is empty, all equal."""
    try:
        weights = [float(word) for word in text.split(":")] if text else [1.0] * count
    except ValueError:
        raise click.UsageError(f"--weights must be numbers between colons, got '{text}'") from None
    total = sum(weights)
    if len(weights) != count or total == 0.0 or not math.isfinite(total):
        raise click.UsageError(
            f"--weights must be {count} numbers whose sum is not 0, got '{text}'"
        )
    if text and abs(total - 1.0) > _TOLERANCE:
        cli.warn(f"Normalizing weights to sum to one, sum was {total:g}")
    return [weight / total for weight in weights]


@cli.tool(
    "nnet3-average",
    "",
    click.argument("names", metavar="NNET-IN... NNET-OUT", nargs=-1),
    flags.BINARY,
    cli.option("--weights", "", "A weight for each network; by default equal.", "W1:W2:..."),
    ignored={"--num-threads": "threads"},
)
def nnet3_average(names: tuple[str, ...], binary: bool, weights: str) -> None:
    """Average the networks in the files NNET-IN... and write the result to NNET-OUT.

    A file may be "-", "command |" or "| command".
    """
    if len(names) < 2:
        raise cli.ArgumentCountError(f"expected two files at least, got {len(names)}")
    *input_names, output_name = names
    total: Nnet | None = None
    for name, weight in zip(
        input_names, _normalized_weights(weights, len(input_names)), strict=True
    ):
        nnet = streams.read_nnet(name)
        terms = ([nnet], [weight]) if total is None else ([total, nnet], [1.0, weight])
        total = editing.weighted_sum(*terms)
    assert total is not None
    streams.write_nnet(total, output_name, binary=binary)
    cli.log(f"Averaged parameters of {len(input_names)} neural nets, and wrote to {output_name}")
