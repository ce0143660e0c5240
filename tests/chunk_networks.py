"""Random networks whose outputs depend on how an utterance is cut, unless chunks are cut with care.

Descriptors nest Failover, IfDefined, Round, ReplaceIndex and Switch over inputs of every kind:
features, an i-vector read for all frames or at its own time, nodes of either, and outputs that read
no features.
"""

from __future__ import annotations

import re
from random import Random

import attrs
import package_tests  # noqa: F401  the helpers of the packages
from network_generator import DIM, LAYERS, NetworkWriter
from nnet3_descriptors import Nnet, node_config_lines, parse_descriptor

IVECTOR = "ReplaceIndex(ivector, t, 0)"
OPTIONAL = (
    *["IfDefined(", "Failover(", "StatisticsPooling", "StatisticsExtraction"],
    *["RestrictedAttention", "TimeHeightConvolution"],
)
"""What makes a row depend on which other rows there are."""


@attrs.define
class ChunkWriter(NetworkWriter):
    """Writes such descriptors.

    Attributes:
        is_past: Whether descriptors read only the present and the past.
        speakers: Sources that read nothing but the i-vector, and exist at all times.
        of_ivector: Nodes that read nothing but the i-vector.
        odd: Sources that exist at some times only.
    """

    is_past: bool = False
    speakers: list[str] = attrs.field(factory=list)
    of_ivector: set[str] = attrs.field(factory=set)
    odd: list[str] = attrs.field(factory=list)

    def frames(self, most: int) -> int:
        """A number of frames for an Offset."""
        return self.rng.randint(-most, 0 if self.is_past else most)

    def forwarding(self, sources: list[str], depth: int = 0) -> str:
        """A forwarding descriptor that may change the time in several ways."""
        rng = self.rng
        if depth == 3:
            return rng.choice(sources)
        below = self.forwarding(sources, depth + 1 if rng.randrange(2) else 3)
        match rng.choice(["as it is"] * 6 + ["offset"] * 4 + ["scale", "round", "switch", "fixed"]):
            case "offset":
                return f"Offset({below}, {self.frames(3)})"
            case "scale" if "Scale" not in below and "Switch" not in below:
                return f"Scale({rng.choice([-1.0, 0.5])}, {below})"
            case "round":
                return f"Round({below}, {rng.randint(2, 3)})"
            case "switch":
                others = [self.forwarding(sources, 3) for _ in range(rng.randint(1, 2))]
                return f"Switch({', '.join([below, *others])})"
            case "fixed" if rng.randrange(3) == 0 or names_in(below) <= self.of_ivector:
                return f"ReplaceIndex({below}, t, {rng.choice([0, 0, 0, 1, -1])})"
            case _:
                return below

    def leaf(self, dim: int = DIM) -> str:
        """A forwarding descriptor, most often of sources that exist at all times."""
        sources = [*self.sources, *self.speakers, *self.sources[-1:] * 2]
        return self.forwarding([*sources, *self.odd] if self.rng.randrange(12) == 0 else sources)

    def optional(self) -> str:
        """A forwarding descriptor of any source, perhaps of a far one."""
        read = self.forwarding([*self.sources, *self.speakers, *self.odd * 3])
        return f"Offset({read}, {self.frames(9)})" if self.rng.randrange(3) == 0 else read

    def sum(self, dim: int = DIM, depth: int = 0) -> str:
        """A descriptor of DIM columns; some of its terms can be optional."""
        kinds = ["leaf"] * 3 + ["sum", "failover", "failover", "optional", "optional", "constant"]
        match self.rng.choice(kinds if depth < 2 else ["leaf"]):
            case "sum":
                return f"Sum({self.sum(dim, depth + 1)}, {self.sum(dim, depth + 1)})"
            case "failover":
                first = self.optional()
                if self.rng.randrange(4) == 0:
                    first = f"Sum({first}, {self.optional()})"
                return f"Failover({first}, {self.sum(dim, depth + 1)})"
            case "optional":
                term = f"IfDefined({self.optional()})"
                if self.rng.randrange(4) == 0:
                    term = f"Sum({term}, IfDefined({self.optional()}))"
                return f"Sum({self.sum(dim, depth + 1)}, {term})"
            case "constant":
                return f"Sum(Const({self.rng.choice([1.5, -0.25])}, {dim}), {self.leaf()})"
            case _:
                return self.leaf()


def names_in(descriptor: str) -> set[str]:
    """The nodes that a descriptor reads."""
    return {*parse_descriptor(descriptor).node_names}


def features_in(nnet: Nnet) -> set[str]:
    """The nodes whose values depend on features."""
    reads = {}
    for line in node_config_lines(nnet):
        fields = dict(re.findall(r"([\w-]+)=(.*?)(?= [\w-]+=|$)", line))
        read = fields.get("input") or fields.get("input-node")
        reads[fields["name"]] = names_in(read) if read else set()
    found = {"input"}
    while more := {name for name, sources in reads.items() if sources & found} - found:
        found |= more
    return found


def add_ivector(writer: ChunkWriter) -> None:
    """An input for i-vectors, and sometimes layers of them."""
    rng = writer.rng
    writer.inputs.append(f"input-node name=ivector dim={DIM}")
    writer.speakers.append(IVECTOR)
    writer.odd.append("ivector")
    writer.of_ivector |= {"ivector", "of-speaker", "at-speaker"}
    if rng.randrange(3) == 0:  # exists at all times
        node = writer.layer("of-speaker", "Affine", "input-dim=4 output-dim=4", IVECTOR)
        writer.speakers.append(node)
    if rng.randrange(3) == 0:  # exists at the times of i-vectors
        node = writer.layer("at-speaker", "Affine", "input-dim=4 output-dim=4", "ivector")
        writer.odd.append(node)
        writer.speakers.append(f"ReplaceIndex({node}, t, 0)")


CHUNK_LAYERS = (
    *["rows", "rows", "rows", "append", "append", "wide"],
    *["tdnn", "convolution", "recurrence", "recurrence", "statistics", "attention", "clockwork"],
)
PAST_LAYERS = ("rows", "rows", "append", "append", "wide", "recurrence", "lstm", "clockwork")


def write_chunk_network(rng: Random, *, is_past: bool, has_ivector: bool) -> ChunkWriter:
    """Writes a network, but for its layer 'first' if the reader adds one before.

    Args:
        rng: The source of all choices.
        is_past: Whether descriptors read only the present and the past.
        has_ivector: Whether the network takes i-vectors.
    """
    writer = ChunkWriter(
        rng, inputs=[f"input-node name=input dim={DIM}"], sources=["input"], is_past=is_past
    )
    if has_ivector:
        add_ivector(writer)
    finish_chunk_network(writer)
    return writer


def finish_chunk_network(writer: ChunkWriter) -> None:
    """Adds layers, and the output, which sometimes reads no features."""
    rng = writer.rng
    kinds = PAST_LAYERS if writer.is_past else CHUNK_LAYERS
    for number in range(rng.choice([0, 0, 0, 1, 1, 2, 3])):
        LAYERS[rng.choice(kinds)](writer, f"layer{number}")
    if writer.speakers and rng.randrange(8) == 0:
        writer.sources = writer.speakers
    writer.nodes.append(f"output-node name=output input={writer.sum()}")
