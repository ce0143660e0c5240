"""Tools for linear discriminant analysis of the outputs of a network, by the labels of examples.

nnet3-acc-lda-stats             statistics of examples with classes
nnet3-chain-acc-lda-stats       statistics of examples of chain models
nnet-get-feature-transform      a transform of features, from such statistics
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import click
import nnet3_descriptors
import nnet3_training
from nnet3_training import chain

from nnet3_tools import cli, flags, streams
from nnet3_tools.egs import forms

if TYPE_CHECKING:
    from nnet3_tools.training.lda_stats import FeatureTransform, LdaStats


BINARY = cli.boolean_option("--binary", "Write in binary form.", default=True)


@cli.tool(
    "nnet3-acc-lda-stats",
    "NNET-IN EGS-RSPECIFIER STATS-OUT",
    BINARY,
    cli.option("--rand-prune", 0.0, "Prune weights below this.", least=0.0),
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_acc_lda_stats(
    nnet_in: str, egs_in: str, stats_out: str, binary: bool, rand_prune: float
) -> None:
    """Sum up the outputs of the network NNET-IN on examples, by the classes of their labels.

    Of examples of chain models, which nnet3-chain-acc-lda-stats takes, these are the pdfs: of the
    paths of the supervision, by their probability; or of the alignment, where paths are not bound
    to times. Such examples must not be merged.
    """
    nnet = streams.read_nnet(nnet_in)
    if forms.form_of_tool() is forms.CHAIN:
        stats = _summed_up(nnet, forms.CHAIN, egs_in, _pdfs, rand_prune)
    else:
        stats = _summed_up(nnet, forms.form_for(nnet), egs_in, _classes, rand_prune)
    streams.write_elements(stats_out, stats.write, binary=binary)
    cli.log(
        f"Accumulated stats, soft frame count = {stats.counts.sum():.6g}.  Wrote to {stats_out}"
    )


nnet3_chain_acc_lda_stats = nnet3_acc_lda_stats.named("nnet3-chain-acc-lda-stats")


def _classes(entry: forms.Entry) -> nnet3_training.SparsePosteriors:
    """The classes of an example, frame by frame."""
    from nnet3_tools.training.lda_stats import as_posteriors

    supervision = {io.name: io.supervision for io in entry.value.outputs}.get("output")
    if isinstance(supervision, nnet3_training.DenseTargets):
        supervision = as_posteriors(supervision)
    if not isinstance(supervision, nnet3_training.SparsePosteriors):
        raise click.ClickException(f"example '{entry.key}' has no output 'output'")
    return supervision


def _pdfs(entry: forms.Entry) -> nnet3_training.SparsePosteriors:
    """The pdfs of an example of a chain model, frame by frame."""
    names = [io.name for io in entry.value.outputs]
    if names != ["output"]:
        raise click.ClickException(
            f"example '{entry.key}': expected one output named 'output', found {names}"
        )
    (output,) = entry.value.outputs
    if output.supervision.num_sequences != 1:
        raise click.ClickException(
            f"example '{entry.key}': expected one sequence, found "
            f"{output.supervision.num_sequences}: the examples were merged"
        )
    try:
        return chain.frame_posteriors(output.supervision)
    except nnet3_training.ExampleError as error:
        raise click.ClickException(f"example '{entry.key}': {error}") from error


def _summed_up(
    nnet: nnet3_descriptors.Nnet,
    form: forms.ExampleForm,
    egs_in: str,
    classes_of: Callable[[forms.Entry], nnet3_training.SparsePosteriors],
    rand_prune: float,
) -> LdaStats:
    """The statistics of the outputs for examples."""
    import numpy as np

    from nnet3_tools.training.lda_stats import LdaStats

    evaluator, stats = nnet3_training.Evaluator(nnet), None
    rng, count = np.random.default_rng(0), 0
    for entry in form.entries(egs_in):
        count += 1
        known = classes_of(entry)
        frames = evaluator.outputs(entry.value)["output"]
        stats = stats or LdaStats(known.dim, frames.shape[1])
        if stats.sums.shape != (known.dim, frames.shape[1]):
            raise click.ClickException(
                f"example '{entry.key}': expected {len(stats.counts)} classes, as in examples "
                f"before, found {known.dim}"
            )
        stats.add(frames, known, rand_prune, rng)
    cli.log(f"Processed {count} examples.")
    if stats is None or not stats.counts.sum():
        raise click.ClickException(f"'{egs_in}' has no examples")
    return stats


@cli.tool(
    "nnet-get-feature-transform",
    "MATRIX-OUT STATS-IN...",
    BINARY,
    cli.option("--dim", -1, "Rows of the matrix; by default as many as columns."),
    cli.boolean_option(
        "--remove-offset",
        "Add a column that makes the mean of the transformed features 0.",
        default=True,
    ),
    cli.option(
        "--within-class-factor",
        0.001,
        "Variance within classes, relative to usual LDA, where classes differ much.",
        least=0.0,
        shown=True,
    ),
    cli.option(
        "--max-singular-value",
        5.0,
        "Larger singular values of the matrix become this; 0 for no limit.",
        shown=True,
    ),
    cli.option(
        "--write-cholesky",
        "",
        "Also write the Cholesky factor of the covariance within classes.",
        "FILE",
    ),
    cli.option("--write-within-covar", "", "Also write the covariance within classes.", "FILE"),
)
def nnet_get_feature_transform(
    matrix_out: str,
    stats_in: tuple[str, ...],
    binary: bool,
    dim: int,
    write_cholesky: str,
    write_within_covar: str,
    **options: Any,
) -> None:
    """Compute a transform of features from statistics of nnet3-acc-lda-stats.

    A FixedAffineComponent with this matrix makes features easier to train on. It is that of linear
    discriminant analysis, but makes directions in which classes hardly differ small.
    """
    import numpy as np

    from nnet3_tools.training.lda_stats import feature_transform

    stats = _read_stats(stats_in)
    columns, count = stats.sums.shape[1], float(stats.counts.sum())
    if not count:
        raise click.ClickException(f"{stats_in[0]}: the statistics have no frames")
    if dim > columns:
        raise click.ClickException(
            f"--dim: expected at most {columns}, the columns of the statistics, found {dim}"
        )
    rows = dim if dim > 0 else columns
    cli.log(f"Data count is {count:.6g}")
    try:
        found = feature_transform(stats, dim=rows, **options)
    except np.linalg.LinAlgError as error:
        raise click.ClickException(
            f"{stats_in[0]}: features do not vary within classes, or are not finite: {error}"
        ) from error
    _log_transform(found, rows, options["max_singular_value"])
    streams.write_elements(matrix_out, methodcaller("matrix", found.matrix), binary=binary)
    factor = found.cholesky
    for name, matrix in ((write_cholesky, factor), (write_within_covar, factor @ factor.T)):
        if name:
            streams.write_elements(name, methodcaller("symmetric_matrix", matrix), binary=binary)


def _read_stats(names: tuple[str, ...]) -> LdaStats:
    """The statistics of all files together."""
    from nnet3_descriptors.files import open_reader

    from nnet3_tools.training.lda_stats import LdaStats

    total: LdaStats | None = None
    for name in names:
        stats = streams.read(lambda source: LdaStats.read(open_reader(source)), name)
        if total is not None and total.sums.shape != stats.sums.shape:
            (classes, columns), found = total.sums.shape, stats.sums.shape
            raise click.ClickException(
                f"{name}: expected {classes} classes of {columns} columns, as in {names[0]}, found "
                f"{found[0]} of {found[1]}"
            )
        total = stats if total is None else total + stats
    assert total is not None, "an argument is required"
    return total


def _log_transform(found: FeatureTransform, rows: int, limit: float) -> None:
    """Logs what Kaldi's tool logs."""
    if found.smoothing:
        cli.log(
            f"Cholesky failed (possibly not +ve definite), so adding {found.smoothing:.6g} to "
            "diagonal and trying again.\n"
        )
    values = " ".join(f"{value:.6g}" for value in found.between)
    cli.log(f"LDA singular values are  [ {values} ]\n")
    cli.log(f"Sum of all singular values is {found.between.sum():.6g}")
    cli.log(f"Sum of selected singular values is {found.between[:rows].sum():.6g}")
    if found.num_limited:
        cli.log(
            f"Applied ceiling to {found.num_limited} out of {rows} singular values of transform "
            f"using ceiling {limit:g}, max is {found.largest:.6g}"
        )
