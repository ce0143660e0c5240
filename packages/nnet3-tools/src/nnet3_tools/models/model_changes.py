"""The options of nnet3-copy and nnet3-am-copy that change a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
from nnet3_descriptors import editing

from nnet3_tools.kaldi_command import boolean_option, logged
from nnet3_tools.streams import read_text, understanding

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


@attrs.frozen(kw_only=True)
class ModelChanges:
    """The changes of a network that the options name.

    Attributes:
        tool: Name of the tool.
        nnet_config: Name of a file with config lines; "" for none.
        edits_config: Name of a file with edit directives; "" for none.
        edits: Edit directives, separated by semicolons.
        learning_rate: New learning rate; negative for none.
        scale: Factor for the parameters.
        prepare_for_test: Set test mode and collapse components.
    """

    tool: str
    nnet_config: str
    edits_config: str
    edits: str
    learning_rate: float
    scale: float
    prepare_for_test: bool

    def with_config(self, nnet: Nnet) -> Nnet:
        """Returns the network with the nodes and components of --nnet-config."""
        if not self.nnet_config:
            return nnet
        text = read_text(self.nnet_config)
        with understanding(self.nnet_config):
            return nnet3_descriptors.parse_config(text, nnet)

    def with_learning_rate(self, nnet: Nnet) -> Nnet:
        """Returns the network with --learning-rate."""
        rate = self.learning_rate
        return nnet if rate < 0 else editing.set_learning_rate(nnet, rate)

    def with_edits(self, nnet: Nnet) -> Nnet:
        """Returns the network after --edits-config and --edits."""
        if not self.edits_config and not self.edits:
            return nnet
        with logged(self.tool, "nnet3_descriptors.editing"):
            if self.edits_config:
                text = read_text(self.edits_config)
                with understanding(self.edits_config):
                    nnet = editing.apply_edits(nnet, text)
            if self.edits:
                nnet = editing.apply_edits(nnet, self.edits.replace(";", "\n"))
        return nnet

    def scaled(self, nnet: Nnet) -> Nnet:
        """Returns the network with --scale."""
        return nnet if self.scale == 1.0 else editing.scale(nnet, self.scale)

    def prepared(self, nnet: Nnet) -> Nnet:
        """Returns the network with --prepare-for-test."""
        if not self.prepare_for_test:
            return nnet
        # Kaldi's tools leave dropout and batch-norm in place.
        options = editing.CollapseOptions(dropout=False, batchnorm=False)
        return editing.collapse_model(nnet3_descriptors.set_test_mode(nnet), options)


def model_change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, in the order of its help."""
    options = (
        click.option("--nnet-config", default="", metavar="FILE", help="Config lines to add."),
        click.option(
            "--edits-config", default="", metavar="FILE", help="Edit directives, one on each line."
        ),
        click.option(
            "--edits", default="", metavar="EDITS", help="Edit directives, separated by ';'."
        ),
        click.option(
            "--learning-rate", default=-1.0, metavar="RATE", help="Learning rate to set, if >= 0."
        ),
        click.option("--scale", default=1.0, metavar="FACTOR", help="Multiplies the parameters."),
        boolean_option(
            "--prepare-for-test",
            help="Set the test mode of batch-norm and dropout; fold components into others.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
