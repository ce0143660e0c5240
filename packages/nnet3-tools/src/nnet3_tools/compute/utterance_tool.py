"""The common parts of the tools that run a model over a table of features.

Such a tool declares its own options, and the work that they ask for on an utterance. This module
does the rest: arguments, devices, threads, progress, exit status.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import nnet3
import nnet3_runtime_cuda
import nnet3_runtime_cuda.device
import nnet3_tables
from nnet3_runtime_cuda.device import MOST_THREADS

from nnet3_tools import cli, flags, streams
from nnet3_tools.compute.inputs import Recordings, has_recordings
from nnet3_tools.compute.utterances import (
    compute_all,
    compute_in_shards,
    num_utterances,
    total_of,
)
from nnet3_tools.progress import Progress

if TYPE_CHECKING:
    from nnet3_tools.compute.inputs import Ivectors
    from nnet3_tools.compute.utterances import Compute

    Prepare = Callable[[str, nnet3_tables.FloatArray], nnet3.Work]
    """Makes the work for an utterance, from its key and features."""


EPILOG = """\b
Examples:
{examples}

Tables are named as in Kaldi: ark:FILE, scp:FILE, ark,t:FILE (text), - for standard input or
output, 'ark:COMMAND |' and 'scp:COMMAND |' for the output of a command. Commands inside script
files are not run. With the option p (scp,p:FILE), entries that cannot be read are left out, with a
warning; with f (ark,f:-), each result is handed on before the next utterance is read.

--config=FILE reads options from a file.

An utterance that cannot be computed, or whose output is not finite, is reported and left out; the
others are written. The exit status is 255 if that was for another reason than missing frames or
i-vectors, or if a table is damaged; else 0, or 1 if no utterance was computed. Until an archive is
complete its file is called FILE.RANDOM.incomplete; that is what an interruption leaves, and nobody
else removes."""

_THREADS = cli.option(
    "--num-threads",
    1,
    f"How many threads compute, at most {MOST_THREADS}: chunks of an utterance, and "
    "utterances, side by side.",
    "COUNT",
    shown=True,
    type=click.IntRange(min=1, max=MOST_THREADS),
)


_NODE = cli.option(
    "--output node",
    "output",
    "The node whose values are written: another output, such as output-xent, or any other "
    "node, such as a bottleneck layer.",
    "NODE",
    shown=True,
)

MEMORY = cli.option(
    "--memory",
    512,
    "A quarter of it is for utterances that wait for others with equal chunks, or to be "
    "written, an eighth for the chunks that a thread computes together, the rest for programs that "
    "wait to be used again. The network is not counted.",
    "MEBIBYTES",
    least=1,
    shown=True,
)


_SHARED = ("model_in", "features", "output", "node", "num_threads", "use_gpu")
"""The arguments and options that all tools share, but for --profile and --print-args."""


class UtteranceRun(NamedTuple):
    """One run of a tool: the arguments and options that all tools share.

    Attributes:
        model_in: The model: a file, "-", or "command |".
        features: The table of features.
        output: The table to write.
        node: The node of the network whose values are the outputs.
        num_threads: Number of computing threads.
        use_gpu: "yes", "no", "optional" (a GPU if there is one) or "wait" (as "yes").
        progress: Receives the progress.
        profile: The file of --profile; "" for none.
        tracer: Receives what each command reads and writes; None without --profile.
    """

    model_in: str
    features: str
    output: str
    node: str
    num_threads: int
    use_gpu: str
    progress: Progress
    profile: str = ""
    tracer: nnet3_runtime_cuda.Tracer | None = None

    def load_model(self, *, capacity: int = 64) -> nnet3.Model:
        """Loads the model on the requested device.

        Args:
            capacity: The greatest number of kept computations.

        Raises:
            ModelFileError: the file cannot be read, or holds no nnet3 model.
            RunError, ContextError: the network cannot be run.
            DeviceError: the options ask for a GPU, and there is none that can be used.
            RunError: --profile was given with a GPU.
        """
        device = "cuda" if self._wants_gpu() else "cpu"
        options: dict[str, Any] = {
            "device": device,
            "output": self.node,
            "capacity": capacity,
            "trace": self.tracer,
        }
        if os.path.isdir(self.model_in):
            return nnet3.load(self.model_in, **options)
        with streams.readable(self.model_in) as source:
            return nnet3.load(source, **options)

    def of_folder(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options, of which those that are None become what the model's folder says, or 1.

        Raises:
            SpeechError: the options of the folder cannot be read.
        """
        said = None
        if os.path.isdir(self.model_in):
            import nnet3_speech

            said = nnet3_speech.ModelFolder.read(self.model_in).options
        return {
            name: getattr(said, name, 1) if value is None else value
            for name, value in options.items()
        }

    def recordings(self, model: nnet3.Model) -> Recordings | None:
        """The recordings, if the table has no features, but WAV files.

        Raises:
            TableError: the table cannot be read.
            RunError, SpeechError: the model does not take recordings.
        """
        return Recordings(self.features, model) if has_recordings(self.features) else None

    def _wants_gpu(self) -> bool:
        if self.use_gpu == "optional":
            try:
                nnet3_runtime_cuda.device.machine_for("cuda")
            except nnet3_runtime_cuda.DeviceError:
                return False
        return self.use_gpu != "no"

    def check_files(self, tables: Iterable[str]) -> None:
        """Raises an error if the output, or the profile, would overwrite an input.

        Raises:
            TableError: the output is one of the input files.
            click.UsageError: the file of the profile is one of these files.
        """
        tables = [self.features, *tables]
        output = nnet3_tables.Specifier.to_write(self.output)
        read = [self.model_in, *itertools.chain.from_iterable(map(nnet3_tables.files_of, tables))]
        output.check_overwrites_none(read)
        flags.check_overwrites_none(self.profile, [*read, *output.files])

    def write(
        self,
        model: nnet3.Model,
        writer: Callable[[str], nnet3_tables.TableWriter],
        prepare: Prepare,
        *,
        tables: Iterable[str] = (),
        batches: nnet3.BatchOptions | None = None,
        step: int = 1,
        recordings: Recordings | None = None,
    ) -> int:
        """Computes all utterances and writes the results.

        Args:
            model: The model, for the report of the time spent compiling.
            writer: Opens a table to write.
            prepare: Makes the work of an utterance.
            tables: Other tables that are read meanwhile.
            batches: How utterances share minibatches; None: they share none.
            step: Frames between two rows of output.
            recordings: What the table has instead of features, if it has.

        Returns:
            The exit status.

        Raises:
            TableError: the features cannot be opened, or the output cannot be written or is one of
                the files that are read.
            click.UsageError: the file of the profile is one of these files.
        """
        self.check_files(tables)
        with self.progress.reporting(model, *total_of(self.features)):
            compute_all(
                self.features,
                lambda: writer(self.output),
                prepare,
                self.progress,
                recordings=recordings,
                num_threads=self.num_threads,
                waiting=(
                    None
                    if batches is None
                    else model.utterance_queue(self.num_threads, step, batches)
                ),
            )
        return self.progress.status

    def check_shards(self, tables: Iterable[str] = ()) -> None:
        """Raises an error if other processes cannot compute what the options ask for.

        Raises:
            click.UsageError: options contradict each other.
            TableError: the output is one of the input files.
        """
        if self.use_gpu != "no" or self.profile or self.num_threads != 1:
            raise click.UsageError(
                "--jobs and --dask do not go with --use-gpu, --profile and --num-threads"
            )
        if self.model_in in ("", "-") or self.model_in.rstrip().endswith("|"):
            raise click.UsageError(
                "--jobs and --dask need a model in a file, which all workers read"
            )
        self.check_files(tables)

    def write_by_workers(
        self,
        model: nnet3.Model,
        writer: Callable[[str], nnet3_tables.TableWriter],
        compute: Compute,
        jobs: int,
        dask: str | None,
        *,
        ivectors: Callable[[str], Ivectors] = lambda _: (None, None),
        recordings: Recordings | None = None,
        least_frames: int = 1,
    ) -> int:
        """Has processes compute shards of the table, and writes the results; see `check_shards`.

        Args:
            model: The model, for the report of the time spent compiling.
            writer: Opens a table to write.
            compute: Computes an utterance; it can be sent to a process.
            jobs: Number of processes.
            dask: The scheduler of a Dask cluster; None for processes of this machine.
            ivectors: Gives the i-vectors of an utterance.
            recordings: What the table has instead of features, if it has.
            least_frames: Utterances with fewer frames are left out.

        Returns:
            The exit status.

        Raises:
            TableError: a table cannot be opened or written.
            WorkerError: workers died at the same shard three times.
        """
        files = [self.model_in] if model.folder is None else model.folder.files.values()
        newest = max(os.stat(file).st_mtime_ns for file in files)
        total = num_utterances(self.features)
        with (
            self.progress.reporting(model, total),
            flags.chosen_workers(max(jobs, 1), dask) as workers,
        ):
            compute_in_shards(
                (os.path.abspath(self.model_in), newest, self.node),
                nnet3_tables.read_matrices(self.features)
                if recordings is None
                else recordings.samples(),
                lambda: writer(self.output),
                ivectors,
                compute,
                self.progress,
                workers,
                least_frames=least_frames,
            )
        return self.progress.status


def utterance_tool(
    name: str,
    *,
    output: str,
    examples: str,
    options: Sequence[cli.Parameter],
    arguments: Sequence[cli.Parameter] = (),
    ignored: Mapping[str, str] = flags.OF_UTTERANCES,
) -> Callable[[Callable[..., int]], cli.KaldiCommand]:
    """Makes a command of a function that is called with an UtteranceRun and its own options.

    Args:
        name: Name of the tool.
        output: Name of the written table in the tool's help.
        examples: Command lines for the help.
        options: The tool's own options; they come before the common ones.
        arguments: The tool's own arguments, between the model and the features.
        ignored: Options that the tool takes without effect.
    """

    def decorate(function: Callable[..., int]) -> cli.KaldiCommand:
        @functools.wraps(function)
        def run(*, print_args: bool, profile: str, **given: Any) -> int:
            if print_args:
                cli.print_arguments()
            shared = {each: given.pop(each) for each in _SHARED}
            with flags.profiled(profile) as tracer:
                started = UtteranceRun(
                    progress=Progress(name), profile=profile, tracer=tracer, **shared
                )
                return function(started, **given)

        parameters = (
            click.argument("model_in", metavar="NNET-IN"),
            *arguments,
            click.argument("features", metavar="FEATURES-RSPECIFIER"),
            click.argument("output", metavar=output),
            *options,
            *(_NODE, _THREADS, flags.CACHE_DIR, flags.GPU, flags.PROFILE, flags.PRINT_ARGS),
        )
        return click.command(
            name,
            cls=cli.KaldiCommand,
            declared=parameters,
            ignored=ignored,
            epilog=EPILOG.format(examples=examples),
            context_settings={"max_content_width": 100},
        )(run)

    return decorate
