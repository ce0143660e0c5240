"""Posteriors of pdfs by the denominator of a chain model.

nnet3-chain-compute-post        writes those of features, as they are or summed to phones
nnet3-chain-add-post-to-egs     adds those of examples to the examples
"""

from __future__ import annotations

from typing import Any

import click
import nnet3
import nnet3_tables
import nnet3_training
from nnet3_training import chain

from nnet3_tools import cli, flags, progress, streams
from nnet3_tools.chain.train import read_den_fst
from nnet3_tools.compute import chunks, inputs
from nnet3_tools.compute.utterance_tool import MEMORY, UtteranceRun, utterance_tool
from nnet3_tools.egs import forms

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
    found: list[_Posteriors] = []

    def posteriors(model: nnet3.Model) -> _Posteriors:
        transform = _transform(transform_mat, model.output_dim) if transform_mat else None
        found.append(_Posteriors(fst, model.output_dim, options.leaky_hmm_coefficient, transform))
        return found[0]

    status = chunks.compute_chunks(run, computing, nnet3.BatchOptions(memory=memory), posteriors)
    if found[0].num_frames:
        average = found[0].log_prob / found[0].num_frames
        cli.log(
            f"Overall log-prob per (output) frame was {average:.6g} over {found[0].num_frames} "
            "frames."
        )
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


class _Posteriors:
    """Turns outputs into posteriors, and counts.

    Attributes:
        log_prob: The log-probability of the denominator, summed over utterances.
        num_frames: Number of their output frames.
    """

    def __init__(
        self,
        fst: nnet3_training.Fst,
        num_pdfs: int,
        leaky: float,
        transform: nnet3_tables.FloatArray | None,
    ) -> None:
        self.log_prob, self.num_frames = 0.0, 0
        self._graph = nnet3_training.DenominatorGraph(fst, num_pdfs)
        self._leaky, self._transform = leaky, transform

    def __call__(self, outputs: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray:
        """The posteriors of an utterance, (frames, pdfs or phones).

        Args:
            outputs: (frames, pdfs).

        Raises:
            LackingError: they cannot be computed.
        """
        result = self._graph.forward_backward(outputs, 1, self._leaky)
        if not result.is_sound:
            raise progress.LackingError(
                f"Something went wrong; forward-prob = {result.log_prob:g}, num-frames = "
                f"{len(outputs)}"
            )
        self.log_prob += result.log_prob
        self.num_frames += len(outputs)
        posteriors: nnet3_tables.FloatArray = result.derivative
        return posteriors if self._transform is None else posteriors @ self._transform.T


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
    batchnorm_test_mode: bool,
    dropout_test_mode: bool,
    use_gpu: str,
) -> None:
    """Add what the network NNET-IN computes for each example as the input '__LWF-posteriors'.

    Kaldi's learning without forgetting reads it: the model that is trained on these examples is to
    keep what NNET-IN computes. nnet3-chain-train of this package does not train in this way.
    """
    import numpy as np

    options = nnet3_training.ChainOptions(leaky_hmm_coefficient=leaky_hmm_coefficient)
    nnet = streams.read_nnet(nnet_in)
    graph = nnet3_training.DenominatorGraph(read_den_fst(den_fst), nnet.node_dim("output"))
    forms.check_files(egs_in, egs_out)
    tested = nnet3_training.in_test_mode(
        nnet, batchnorm=batchnorm_test_mode, dropout=dropout_test_mode
    )
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
