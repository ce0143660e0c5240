"""nnet3-am-adjust-priors: sets the priors of an acoustic model to average posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click
import nnet3_descriptors

from nnet3_tools.ignored_options import unused
from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    import numpy as np

NAME = "nnet3-am-adjust-priors"


@click.command(cls=KaldiCommand, ignored=unused("--prior-floor"))
@click.argument("model_in", metavar="MODEL-IN")
@click.argument("posteriors_in", metavar="SUMMED-POSTERIORS-IN")
@click.argument("model_out", metavar="MODEL-OUT")
@boolean_option("--binary", default=True, help="Write the model in binary form.")
def command(model_in: str, posteriors_in: str, model_out: str, binary: bool) -> None:
    """Give the acoustic model MODEL-IN priors in proportion to SUMMED-POSTERIORS-IN, a vector."""
    import numpy as np
    from nnet3_descriptors.files import read_vector

    with readable(model_in) as source:
        model = nnet3_descriptors.read_acoustic_model(source)
    with readable(posteriors_in) as source:
        sums = read_vector(source)
    wanted = model.nnet.node_dim("output")
    if sums.size != wanted or not (np.isfinite(sums).all() and sums.min() >= 0.0 < sums.sum()):
        raise click.ClickException(
            f"{posteriors_in}: expected {wanted} posteriors, not all zero, found {sums.size} "
            "numbers"
        )
    priors = sums * np.float32(1.0 / sums.sum(dtype=np.float64))
    if not model.priors.size:
        log(NAME, "Model did not previously have priors attached.")
    else:
        _say_change(model.priors, priors)
    with writable(model_out) as target:
        nnet3_descriptors.write_acoustic_model(
            attrs.evolve(model, priors=priors), target, binary=binary
        )
    log(NAME, f"Modified priors of neural network model and wrote it to {model_out}")


def _say_change(
    old: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    new: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> None:
    import numpy as np

    pdf = int(np.abs(new - old).argmax())
    log(
        NAME,
        f"Adjusting priors: largest absolute difference was for pdf {pdf}, {old[pdf]:.6g} -> "
        f"{new[pdf]:.6g}",
    )
    p, q = (each.astype(np.float64) / each.sum(dtype=np.float64) for each in (old, new))
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = float(np.sum(np.where(p > 0.0, p * np.log(p / q), 0.0)))
    log(NAME, f"Adjusting priors: K-L divergence from old to new is {divergence:.6g}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
