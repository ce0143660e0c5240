"""nnet3-compute-from-egs: the output of a network for each example."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import click
import nnet3_descriptors
import nnet3_tables
import nnet3_training

from nnet3_tools.chosen_workers import DASK, JOBS, chosen_workers
from nnet3_tools.ignored_options import OF_OBJECTIVES, unused
from nnet3_tools.kaldi_command import (
    KaldiCommand,
    boolean_option,
    chosen_device,
    gpu_option,
    log,
    run_tool,
)
from nnet3_tools.streams import readable

if TYPE_CHECKING:
    from nnet3_tables import FloatArray
    from nnet3_training import Evaluator, TrainingExample

NAME = "nnet3-compute-from-egs"

MOST_EXAMPLES = 32
"""Number of examples in a shard; the last one can have fewer."""


@attrs.frozen(kw_only=True, eq=False)
class ExampleShard:
    """Examples, and the network that computes their outputs.

    Attributes:
        nnet: The file of the network.
        version: Its modification time, by which a worker notices a changed file.
        output: The name of the output.
        examples: The examples.
    """

    nnet: str
    version: int
    output: str
    examples: list[TrainingExample] = attrs.field(repr=False)


@functools.lru_cache(maxsize=1)
def _evaluator(path: str, version: int) -> Evaluator:
    return nnet3_training.Evaluator(nnet3_descriptors.read_nnet(path))


def compute_shard(shard: ExampleShard) -> list[tuple[str, FloatArray]]:
    """The key and the output, (rows, dim), of each example of a shard.

    Raises:
        ModelFileError: The network cannot be read.
        ExampleError: An example has no such output.
    """
    evaluator = _evaluator(shard.nnet, shard.version)
    return [(each.key, _output(evaluator, each, shard.output)) for each in shard.examples]


def _output(evaluator: Evaluator, example: TrainingExample, name: str) -> FloatArray:
    outputs = evaluator.outputs(example)
    if name not in outputs:
        raise nnet3_training.ExampleError(f"example '{example.key}' has no output '{name}'")
    return outputs[name]


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES | unused("--binary"))
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("matrices_out", metavar="MATRICES-WSPECIFIER")
@boolean_option("--apply-exp", help="Write the exponentials of outputs.")
@click.option("--output-name", default="output", show_default=True, help="The output to write.")
@JOBS
@DASK
@gpu_option()
def command(
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

    from nnet3_tools.egs.forms import check_files, form_for

    check_files(egs_in, matrices_out)
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    examples = (entry.value for entry in form_for(nnet).entries(egs_in))
    if jobs or dask:
        if use_gpu != "no":
            raise click.UsageError("--jobs and --dask do not go with --use-gpu")
        results = _by_workers(nnet_in, examples, output_name, jobs, dask)
    else:
        evaluator = nnet3_training.Evaluator(nnet, device=chosen_device(use_gpu))
        results = ((each.key, _output(evaluator, each, output_name)) for each in examples)
    count = 0
    with nnet3_tables.MatrixWriter(matrices_out) as writer:
        for key, values in results:
            writer.write(key, np.exp(values) if apply_exp else values)
            count += 1
    log(NAME, f"Processed {count} examples.")


def _by_workers(
    nnet: str, examples: Iterator[TrainingExample], output: str, jobs: int, dask: str | None
) -> Iterator[tuple[str, FloatArray]]:
    """Keys and outputs in the order of the examples, computed in shards by worker processes."""
    if not os.path.isfile(nnet):
        raise click.UsageError("--jobs and --dask need a model in a file, which all workers read")
    path, version = os.path.abspath(nnet), os.stat(nnet).st_mtime_ns
    shards = (
        ExampleShard(nnet=path, version=version, output=output, examples=held)
        for held in iter(lambda: list(itertools.islice(examples, MOST_EXAMPLES)), [])
    )
    with chosen_workers(max(jobs, 1), dask) as workers:
        for results in workers.map(compute_shard, shards):
            yield from results


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
