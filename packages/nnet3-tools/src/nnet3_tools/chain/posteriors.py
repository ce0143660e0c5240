"""Posteriors of pdfs by the denominator of a chain model.

nnet3-chain-compute-post        writes those of features, as they are or summed to phones
nnet3-chain-add-post-to-egs     adds those of examples to the examples
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import nnet3
import nnet3_tables
import nnet3_training
from nnet3_training import chain

from nnet3_tools import cli, flags, progress, streams
from nnet3_tools.compute import chunks, inputs
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.egs import forms
from nnet3_tools.training.train import read_den_fst

EXAMPLES = """\
  nnet3-chain-compute-post --transform-mat=transform.mat --frame-subsampling-factor=3 \\
      --online-ivectors=scp:ivectors.scp --online-ivector-period=10 final.raw den.fst \\
      scp:feats.scp ark:phone_posteriors.ark"""


def _leaky(default: float) -> cli.Parameter:
    return cli.option(
        "--leaky-hmm-coefficient",
        default,
        "Probability of a jump from a state of the denominator to any other; a smaller one "
        "makes posteriors more confident.",
        shown=True,
    )


OPTIONS = (
    *inputs.FRAME_OPTIONS,
    inputs.ACOUSTIC_SCALE,
    _leaky(0.1),
    cli.option(
        "--transform-mat",
        "",
        "A matrix with a row for each phone and a column for each pdf, by which posteriors "
        "are multiplied.",
        "FILE",
    ),
    MEMORY,
)


@utterance_tool(
    "nnet3-chain-compute-post",
    output="MATRIX-WSPECIFIER",
    examples=EXAMPLES,
    options=OPTIONS,
    arguments=[click.argument("den_fst", metavar="DEN-FST")],
)
def nnet3_chain_compute_post(
    run: UtteranceRun,
    *,
    den_fst: str,
    leaky_hmm_coefficient: float,
    transform_mat: str,
    memory: int,
    **computing: Any,
) -> int:
    """Write the posteriors of pdfs by the denominator DEN-FST for each utterance.

    They are computed from the outputs of the chain model NNET-IN. With --transform-mat they become
    posteriors of phones.
    """
    options = nnet3_training.ChainOptions(leaky_hmm_coefficient=leaky_hmm_coefficient)
    fst = read_den_fst(den_fst)
    log_prob, num_frames = 0.0, 0

    def change_for(
        model: nnet3.Model,
    ) -> Callable[[nnet3_tables.FloatArray], nnet3_tables.FloatArray]:
        transform = _transform(transform_mat, model.output_dim) if transform_mat else None
        graph = nnet3_training.DenominatorGraph(fst, model.output_dim)

        def posteriors(outputs: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray:
            nonlocal log_prob, num_frames
            result = graph.forward_backward(outputs, 1, options.leaky_hmm_coefficient)
            if not result.is_sound:
                raise progress.LackingError(
                    f"Something went wrong; forward-prob = {result.log_prob:g}, num-frames = "
                    f"{len(outputs)}"
                )
            log_prob += result.log_prob
            num_frames += len(outputs)
            found: nnet3_tables.FloatArray = result.derivative
            return found if transform is None else found @ transform.T

        return posteriors

    status = chunks.compute_chunks(run, computing, nnet3.BatchOptions(memory=memory), change_for)
    if num_frames:
        average = log_prob / num_frames
        cli.log(f"Overall log-prob per (output) frame was {average:.6g} over {num_frames} frames.")
    return status


def _transform(name: str, num_pdfs: int) -> nnet3_tables.FloatArray:
    """A matrix of a column for each pdf.

    Raises:
        ModelFileError: it cannot be read.
        click.ClickException: it has another number of columns.
    """
    from nnet3_descriptors.files import read_matrix

    matrix = streams.read(read_matrix, name)
    if matrix.shape[1] != num_pdfs:
        raise click.ClickException(
            f"{name}: expected a column for each of {num_pdfs} pdfs, found {matrix.shape[1]}"
        )
    return matrix


UNUSED = flags.unused(
    "--apply-deriv-weights",
    "--backstitch-training-interval",
    "--backstitch-training-scale",
    "--batchnorm-stats-scale",
    "--l2-regularize",
    "--l2-regularize-factor",
    "--lwf-den-scale",
    "--lwf-scale",
    "--max-param-change",
    "--momentum",
    "--out-of-range-regularize",
    "--print-interval",
    "--store-component-stats",
    "--xent-regularize",
    "--zero-component-stats",
)
"""The options of nnet3-chain-train, which Kaldi's tool takes."""


@cli.tool(
    "nnet3-chain-add-post-to-egs",
    "NNET-IN DEN-FST EGS-RSPECIFIER EGS-WSPECIFIER",
    cli.option(
        "--type kind",
        "raw",
        "raw: outputs of the network; den: posteriors by the denominator.",
        shown=True,
        type=click.Choice(("raw", "den")),
    ),
    cli.boolean_option("--apply-exp", "For raw: add the exponentials of outputs.", default=True),
    cli.option("--clip-threshold", 0.0, "For den: smaller posteriors become 0."),
    _leaky(1e-5),
    cli.boolean_option("--batchnorm-test-mode", "Use batch-norm with its statistics."),
    cli.boolean_option("--dropout-test-mode", "Use dropout in test mode: drop nothing."),
    flags.GPU,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES | UNUSED,
)
def nnet3_chain_add_post_to_egs(
    nnet_in: str,
    den_fst: str,
    egs_in: str,
    egs_out: str,
    kind: str,
    apply_exp: bool,
    clip_threshold: float,
    leaky_hmm_coefficient: float,
    use_gpu: str,
    **modes: bool,
) -> None:
    """Add what the network NNET-IN computes for each example as the input '__LWF-posteriors'.

    Kaldi's learning without forgetting reads it: the model that is trained on these examples is to
    keep what NNET-IN computes. nnet3-chain-train of this package does not train in this way.
    """
    import numpy as np

    options = nnet3_training.ChainOptions(leaky_hmm_coefficient=leaky_hmm_coefficient)
    nnet = streams.read_nnet(nnet_in)
    graph = nnet3_training.DenominatorGraph(read_den_fst(den_fst), nnet.node_dim("output"))
    streams.check_tables([egs_in], egs_out)
    tested = flags.in_test_mode(nnet, **modes)
    evaluator = nnet3_training.Evaluator(tested, device=flags.device(use_gpu))
    count = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in forms.CHAIN.entries(egs_in):
            example = entry.value
            values = evaluator.outputs(example).get("output")
            if values is None:
                raise click.ClickException(f"example '{entry.key}' has no output 'output'")
            if kind == "den":
                found = graph.forward_backward(
                    values, example.num_sequences, options.leaky_hmm_coefficient
                )
                if not found.is_sound:
                    raise click.ClickException(
                        f"example '{entry.key}': the posteriors cannot be computed"
                    )
                values = np.where(found.derivative < clip_threshold, 0.0, found.derivative)
            elif apply_exp:
                values = np.exp(values)
            forms.CHAIN.write(writer, chain.with_posteriors(example, values))
            count += 1
        cli.log(f"Read {count} neural-network training examples, wrote {count}")
        if not count:
            raise cli.NothingDoneError(f"'{egs_in}' has no examples")
