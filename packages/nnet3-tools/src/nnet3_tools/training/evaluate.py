"""Tools that evaluate networks on examples: objectives, outputs, the effect of changes."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import nnet3_descriptors
import nnet3_tables
import nnet3_training

from nnet3_tools import cli, flags, streams
from nnet3_tools.egs import forms
from nnet3_tools.training import train

if TYPE_CHECKING:
    import numpy as np


_ACCURACIES = (
    cli.boolean_option("--compute-accuracy", "Print the accuracy, too.", default=True),
    cli.boolean_option("--compute-per-dim-accuracy", "Print the accuracy of each class, too."),
)

_PLACE = "nnet3-compute-prob:PrintTotalStats():nnet-diagnostics.cc:0"
_CHAIN_PLACE = "nnet3-chain-compute-prob:PrintTotalStats():nnet-chain-diagnostics.cc:0"
"""The places in Kaldi's source that its scripts expect in log lines with objectives."""


@cli.tool(
    "nnet3-compute-prob",
    "NNET-IN EGS-RSPECIFIER",
    *flags.test_modes(batchnorm=True),
    *_ACCURACIES,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES | {"--collapse-model": "the optimizer"},
)
def nnet3_compute_prob(
    nnet_in: str,
    egs_in: str,
    compute_accuracy: bool,
    compute_per_dim_accuracy: bool,
    **modes: bool,
) -> None:
    """Print the objective per frame of the network NNET-IN on the examples of EGS-RSPECIFIER."""
    from nnet3_tools.training.objective_log import say_compiling, say_evaluation

    nnet = flags.in_test_mode(streams.read_nnet(nnet_in), **modes)
    evaluator = nnet3_training.Evaluator(nnet)
    for entry in forms.form_for(nnet).entries(egs_in):
        evaluator.add(entry.value)
    if not compute_accuracy:
        evaluator.accuracies.clear()
    say_evaluation(evaluator, nnet, place=_PLACE, per_column=compute_per_dim_accuracy)
    say_compiling(evaluator.compile_seconds)
    if not any(total.weight > 0.0 for total in evaluator.objectives.values()):
        raise cli.NothingDoneError(f"'{egs_in}' has no examples with weight")


@cli.tool(
    "nnet3-chain-compute-prob",
    "NNET-IN DEN-FST EGS-RSPECIFIER",
    *train.CHAIN_OPTIONS,
    *flags.test_modes(batchnorm=True),
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES | flags.unused("--compute-accuracy", "--compute-per-dim-accuracy"),
)
def nnet3_chain_compute_prob(nnet_in: str, den_fst: str, egs_in: str, **options: Any) -> None:
    """Print the objective per frame of the network NNET-IN on the examples of EGS-RSPECIFIER."""
    from nnet3_tools.training.objective_log import say_compiling, say_log_probabilities

    nnet, denominator = streams.read_nnet(nnet_in), train.read_den_fst(den_fst)
    training = nnet3_training.ChainTraining(nnet, denominator, train.taken(options))
    tested = flags.in_test_mode(nnet, **options)
    evaluator = nnet3_training.Evaluator(tested, objective=training)
    for entry in forms.CHAIN.entries(egs_in):
        evaluator.add(entry.value)
    say_log_probabilities(evaluator, place=_CHAIN_PLACE)
    say_compiling(evaluator.compile_seconds)
    if not any(total.weight > 0.0 for total in evaluator.objectives.values()):
        raise cli.NothingDoneError(f"'{egs_in}' has no examples with weight")


@cli.tool(
    "nnet3-show-progress",
    "OLD-NNET-IN NEW-NNET-IN [EGS-RSPECIFIER]",
    cli.option(
        "--num-segments",
        1,
        "Number of networks between the two at which gradients are computed.",
        least=1,
    ),
    *_ACCURACIES,
    flags.GPU,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES,
)
def nnet3_show_progress(
    old_in: str,
    new_in: str,
    egs_in: str,
    num_segments: int,
    compute_accuracy: bool,
    compute_per_dim_accuracy: bool,
    use_gpu: str,
) -> None:
    """Print how the parameters of two networks differ, by component.

    With examples, also print how the change of each component affects the objective: the change
    times the gradient at some points between the networks.
    """
    from nnet3_tools.training.objective_log import parameter_counts

    old = streams.read_nnet(old_in)
    new = streams.read_nnet(new_in)
    if parameter_counts(old) != parameter_counts(new):
        cli.warn("Parameter-dim mismatch, cannot show progress.")
        return
    if egs_in:
        _say_objectives(
            old,
            new,
            egs_in,
            num_segments,
            with_accuracy=compute_accuracy,
            per_column=compute_per_dim_accuracy,
            device=flags.device(use_gpu),
        )
    _say_parameters(old, new)


def _say_objectives(
    old: nnet3_descriptors.Nnet,
    new: nnet3_descriptors.Nnet,
    egs_in: str,
    num_segments: int,
    *,
    with_accuracy: bool,
    per_column: bool,
    device: str,
) -> None:
    import numpy as np
    from nnet3_descriptors.editing import weighted_sum

    from nnet3_tools.training.objective_log import by_component, dot_products, say_evaluation

    examples = [entry.value for entry in forms.form_for(new).entries(egs_in)]
    if not examples:
        raise click.ClickException(f"'{egs_in}' has no examples")
    difference = nnet3_descriptors.vectorize(new).astype(np.float64) - nnet3_descriptors.vectorize(
        old
    )
    changes = np.zeros(0)
    for segment in range(num_segments):
        middle = (segment + 0.5) / num_segments
        evaluator = nnet3_training.Evaluator(
            weighted_sum([new, old], [middle, 1.0 - middle]), device=device, gradient=True
        )
        for example in examples:
            evaluator.add(example)
        if "output" not in evaluator.objectives:
            raise click.ClickException(f"the examples of '{egs_in}' have no output 'output'")
        if not with_accuracy:
            evaluator.accuracies.clear()
        say_evaluation(evaluator, new, per_column=per_column)
        total = evaluator.objectives["output"]
        cli.log(f"At position {middle:.6g}, objf per frame is {total.per_frame:.6g}")
        found = dot_products(new, evaluator.gradient, difference) / (total.weight * num_segments)
        changes = changes + found if changes.size else found
    cli.log(f"Total objf change per component is {by_component(old, changes)}")


def _say_parameters(old: nnet3_descriptors.Nnet, new: nnet3_descriptors.Nnet) -> None:
    import numpy as np

    from nnet3_tools.training.objective_log import by_component

    before, after = (nnet3_descriptors.vectorize(nnet).astype(np.float64) for nnet in (old, new))
    norms = functools.partial(_norms, old)
    changed, size = norms(after - before), norms(before)
    relative = changed / size
    cli.log(f"Parameter differences per layer are {by_component(old, changed)}")
    cli.log(f"Norms of parameter matrices from <new-nnet-in> are {by_component(new, norms(after))}")
    cli.log(f"Relative parameter differences per layer are {by_component(old, relative)}")


def _norms(
    nnet: nnet3_descriptors.Nnet, vector: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    import numpy as np

    from nnet3_tools.training.objective_log import dot_products

    return np.sqrt(dot_products(nnet, vector, vector))


MOST_EXAMPLES = 32
"""Number of examples in a shard; the last one can have fewer."""


@functools.lru_cache(maxsize=1)
def _evaluator(path: str, version: int) -> nnet3_training.Evaluator:
    return nnet3_training.Evaluator(nnet3_descriptors.read_nnet(path))


def compute_shard(
    path: str, version: int, output: str, examples: list[nnet3_training.TrainingExample]
) -> list[tuple[str, nnet3_tables.FloatArray]]:
    """The key and the output, (rows, dim), of each of some examples, as a worker computes them.

    Args:
        path: The file of the network.
        version: Its modification time, by which a worker notices a changed file.
        output: The name of the output.
        examples: The examples.

    Raises:
        ModelFileError: The network cannot be read.
        ExampleError: An example has no such output.
    """
    evaluator = _evaluator(path, version)
    return [(each.key, _output(evaluator, each, output)) for each in examples]


def _output(
    evaluator: nnet3_training.Evaluator, example: nnet3_training.TrainingExample, name: str
) -> nnet3_tables.FloatArray:
    outputs = evaluator.outputs(example)
    if name not in outputs:
        raise nnet3_training.ExampleError(f"example '{example.key}' has no output '{name}'")
    return outputs[name]


@cli.tool(
    "nnet3-compute-from-egs",
    "NNET-IN EGS-RSPECIFIER MATRICES-WSPECIFIER",
    cli.boolean_option("--apply-exp", "Write the exponentials of outputs."),
    cli.option("--output-name", "output", "The output to write.", shown=True),
    flags.JOBS,
    flags.DASK,
    flags.GPU,
    flags.CACHE_DIR,
    ignored=flags.OF_OBJECTIVES | flags.unused("--binary"),
)
def nnet3_compute_from_egs(
    nnet_in: str,
    egs_in: str,
    matrices_out: str,
    apply_exp: bool,
    output_name: str,
    jobs: int,
    dask: str | None,
    use_gpu: str,
) -> None:
    """Write the output of the network NNET-IN for each example of EGS-RSPECIFIER."""
    import numpy as np

    streams.check_tables([egs_in], matrices_out)
    nnet = streams.read_nnet(nnet_in)
    examples = (entry.value for entry in forms.form_for(nnet).entries(egs_in))
    if jobs or dask:
        if use_gpu != "no":
            raise click.UsageError("--jobs and --dask do not go with --use-gpu")
        results = _by_workers(nnet_in, examples, output_name, jobs, dask)
    else:
        evaluator = nnet3_training.Evaluator(nnet, device=flags.device(use_gpu))
        results = ((each.key, _output(evaluator, each, output_name)) for each in examples)
    count = 0
    with nnet3_tables.MatrixWriter(matrices_out) as writer:
        for key, values in results:
            writer.write(key, np.exp(values) if apply_exp else values)
            count += 1
    cli.log(f"Processed {count} examples.")


def _by_workers(
    nnet: str,
    examples: Iterator[nnet3_training.TrainingExample],
    output: str,
    jobs: int,
    dask: str | None,
) -> Iterator[tuple[str, nnet3_tables.FloatArray]]:
    """Keys and outputs in the order of the examples, computed in shards by worker processes."""
    if not os.path.isfile(nnet):
        raise click.UsageError("--jobs and --dask need a model in a file, which all workers read")
    path, version = os.path.abspath(nnet), os.stat(nnet).st_mtime_ns
    compute = functools.partial(compute_shard, path, version, output)
    shards = iter(lambda: list(itertools.islice(examples, MOST_EXAMPLES)), [])
    with flags.chosen_workers(max(jobs, 1), dask) as workers:
        for results in workers.map(compute, shards):
            yield from results
