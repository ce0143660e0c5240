"""nnet3-chain-fine-tune: trains the parameters of a trained chain model further."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.bar import Bar
from nnet3_tools.chain.options import chain_options, read_den_fst, taken
from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import (
    KaldiCommand,
    boolean_option,
    chosen_device,
    gpu_option,
    log,
    run_tool,
    warn,
)
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_training import ObjectiveSum

NAME = "nnet3-chain-fine-tune"

_DEFAULTS = nnet3_training.FineTuning()


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES)
@click.argument("model_in", metavar="MODEL-IN")
@click.argument("den_fst", metavar="DEN-FST")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("model_out", metavar="MODEL-OUT")
@chain_options
@click.option(
    "--learning-rate",
    type=float,
    default=_DEFAULTS.learning_rate,
    help="Learning rate of the first epoch.",
)
@click.option(
    "--final-learning-rate",
    type=float,
    help="Learning rate of the last epoch; by default that of the first.",
)
@click.option("--epochs", type=click.IntRange(min=1), default=_DEFAULTS.epochs, show_default=True)
@click.option(
    "--minibatch-size",
    type=click.IntRange(min=1),
    default=_DEFAULTS.minibatch_size,
    show_default=True,
    help="Examples of a minibatch.",
)
@click.option(
    "--freeze",
    "frozen",
    multiple=True,
    metavar="PATTERN",
    help="Components that do not change, such as 'tdnnf1*'; may be given several times.",
)
@click.option(
    "--momentum",
    type=float,
    default=0.0,
    help="Share of the last change of parameters to add to the next.",
)
@click.option(
    "--max-param-change",
    type=float,
    default=2.0,
    help="Largest change of all parameters in one step (2-norm).",
)
@click.option("--srand", default=0, help="Seed of the order of examples.")
@click.option(
    "--held-out",
    default="",
    metavar="EGS-RSPECIFIER",
    help="Print the objective on these examples, too.",
)
@boolean_option("--binary", default=True, help="Write the model in binary form.")
@gpu_option()
def command(
    model_in: str,
    den_fst: str,
    egs_in: str,
    model_out: str,
    held_out: str,
    srand: int,
    binary: bool,
    use_gpu: str,
    **options: Any,
) -> None:
    """Train the model MODEL-IN, .mdl or .raw, on the examples of EGS-RSPECIFIER for a few epochs.

    Batch-norm keeps its statistics. MODEL-OUT differs from MODEL-IN in its parameters only. The
    examples, as nnet3-chain-get-egs writes them, have one sequence each and are held in memory.
    """
    from nnet3_tools.chain.egs.examples import CHAIN
    from nnet3_tools.objectives.objective_log import value

    with readable(model_in) as source:
        model = nnet3_descriptors.read_model(source)
    nnet = model.nnet if isinstance(model, nnet3_descriptors.AcousticModel) else model
    training = nnet3_training.ChainTraining(nnet, read_den_fst(den_fst), taken(options))
    examples = [entry.value for entry in CHAIN.entries(egs_in)]
    held = [entry.value for entry in CHAIN.entries(held_out)] if held_out else []
    device = chosen_device(use_gpu)
    settings = nnet3_training.FineTuning(seed=abs(srand), **options)
    log(NAME, f"Read {len(examples)} examples and {len(held)} held-out ones")
    with contextlib.closing(_Progress(settings.epochs * len(examples))) as progress:

        def say_held_out(when: str, nnet: Nnet) -> None:
            sums = nnet3_training.compute_chain_prob(nnet, training, held, device)
            for name, total in sums.items():
                line = value(total).replace(" over ", " per frame, over ")
                progress.say(f"Held out, {when}: log-probability for '{name}' {line}")

        def after_epoch(number: int, nnet: Nnet, totals: dict[str, ObjectiveSum]) -> None:
            for name, total in totals.items():
                progress.say(
                    f"Average objective function for '{name}' in epoch {number} {value(total)}"
                )
            say_held_out(f"after epoch {number}", nnet)

        say_held_out("before", nnet)
        tuned = nnet3_training.fine_tune(
            nnet,
            training,
            examples,
            settings,
            device=device,
            after_epoch=after_epoch,
            after_minibatch=progress.advance,
        )
    if training.objective.num_failed:
        failed = training.objective.num_failed
        warn(NAME, f"{failed} minibatches had no objective.")
    with writable(model_out) as target:
        if isinstance(model, nnet3_descriptors.AcousticModel):
            nnet3_descriptors.write_acoustic_model(
                attrs.evolve(model, nnet=tuned), target, binary=binary
            )
        else:
            nnet3_descriptors.write_nnet(tuned, target, binary=binary)
    log(NAME, f"Wrote model to {model_out}")


class _Progress(Bar):
    """The examples that the network was trained on: a bar, or else a line for each tenth."""

    def __init__(self, total: int) -> None:
        super().__init__(total, " examples")
        self._total, self._done = total, 0.0

    def advance(self, size: float, note: str = "") -> None:
        """Counts the examples of a minibatch."""
        super().advance(size, note)
        before, self._done = self._done, self._done + size
        if not self.is_shown and 10 * before // self._total < 10 * self._done // self._total:
            self.say(f"Trained on {self._done:.0f} of {self._total} examples")

    def say(self, line: str) -> None:
        """Logs a line."""
        super().say(f"LOG ({NAME}) {line}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
