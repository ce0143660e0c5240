"""Edit directives: the lines that nnet3-copy takes in --edits and --edits-config.

    convert-to-fixed-affine [name=PATTERN]
    remove-orphan-nodes [remove-orphan-inputs=BOOL]
    remove-orphan-components
    remove-orphans [remove-orphan-inputs=BOOL]
    set-learning-rate [name=PATTERN] learning-rate=NUMBER
    set-learning-rate-factor [name=PATTERN] learning-rate-factor=NUMBER
    rename-node old-name=NAME new-name=NAME
    remove-output-nodes name=PATTERN
    set-dropout-proportion [name=PATTERN] proportion=NUMBER
    apply-svd name=PATTERN [bottleneck-dim=INT] [energy-threshold=NUMBER]
              [shrinkage-threshold=NUMBER]
    reduce-rank name=PATTERN rank=INT

In a pattern "*" stands for any characters. Without a pattern a directive applies to all components.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from nnet3_descriptors import components, config_reader, errors, similar_names
from nnet3_descriptors.editing import low_rank, settings, structure
from nnet3_descriptors.nnet import Nnet

_SEMICOLON: Final = re.compile(r"""("[^"\n]*"|'[^'\n]*'|\#[^\n]*)|;""")
"""A semicolon; or, as group 1, quoted text or a comment, where it separates nothing."""


def apply_edits(nnet: Nnet, text: str) -> Nnet:
    """Returns the network after a sequence of edit directives.

    Args:
        nnet: The network.
        text: Directives on lines of their own, or with ";" between; "#" begins a comment, which
            ends with the line. Of a key that a directive has twice, the first counts, as in Kaldi.

    Raises:
        ConfigError: A directive has an error, or cannot be carried out.
    """
    errors.ConfigError.check_text(text)
    text = _SEMICOLON.sub(lambda match: match[1] or "\n", text)
    for line in config_reader.config_lines(text):
        directive = _DIRECTIVES.get(line.first_word)
        if directive is None:
            raise line.error(
                f"'{line.first_word}' is no edit directive; those are {', '.join(_DIRECTIVES)}"
                + similar_names.hint(line.first_word, _DIRECTIVES),
                line.first_word,
            )
        try:
            nnet = directive(nnet, line)
        except errors.NetworkError as error:
            raise line.error(str(error)) from error
        line.finish(line.first_word)
    return nnet


_DIRECTIVES: Final[Mapping[str, Callable[[Nnet, components.ConfigLine], Nnet]]] = {
    "convert-to-fixed-affine": lambda nnet, line: settings.convert_to_fixed_affine(
        nnet, line.text("name", "*")
    ),
    "remove-orphan-nodes": lambda nnet, line: structure.remove_orphan_nodes(
        nnet, remove_orphan_inputs=line.boolean("remove-orphan-inputs", False)
    ),
    "remove-orphan-components": lambda nnet, _: structure.remove_orphan_components(nnet),
    "remove-orphans": lambda nnet, line: structure.remove_orphans(
        nnet, remove_orphan_inputs=line.boolean("remove-orphan-inputs", False)
    ),
    "set-learning-rate": lambda nnet, line: settings.set_learning_rate(
        nnet, line.real("learning-rate"), line.text("name", "*")
    ),
    "set-learning-rate-factor": lambda nnet, line: settings.set_learning_rate_factor(
        nnet, line.real("learning-rate-factor"), line.text("name", "*")
    ),
    "rename-node": lambda nnet, line: structure.rename_node(
        nnet, line.text("old-name"), line.text("new-name")
    ),
    "remove-output-nodes": lambda nnet, line: structure.remove_output_nodes(
        nnet, line.text("name")
    ),
    "set-dropout-proportion": lambda nnet, line: settings.set_dropout_proportion(
        nnet, line.real("proportion"), line.text("name", "*")
    ),
    "apply-svd": lambda nnet, line: low_rank.apply_svd(
        nnet,
        line.text("name"),
        bottleneck_dim=line.integer("bottleneck-dim") if line.has("bottleneck-dim") else None,
        energy_threshold=line.real("energy-threshold") if line.has("energy-threshold") else None,
        shrinkage_threshold=line.real("shrinkage-threshold", 1.0),
    ),
    "reduce-rank": lambda nnet, line: low_rank.reduce_rank(
        nnet, line.text("name"), line.integer("rank")
    ),
}
"""What carries out a directive of each name."""
