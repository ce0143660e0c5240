"""Random networks of all kinds that nnet3 can express, as config lines.

All sources of descriptors have DIM columns. Components with other numbers of columns read an Append
or an affine component, and other nodes read them through a dim-range node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import attrs

DIM = 4
MAX_LAYERS = 6

ROW_BY_ROW = {
    "Affine": "input-dim=4 output-dim=4",
    "BackpropTruncation": "dim=4",
    "BatchNorm": "dim=4",
    "BlockAffine": "input-dim=4 output-dim=4 num-blocks=2",
    "ClipGradient": "dim=4 clipping-threshold=5",
    "FixedScale": "dim=4 scale=0.5",
    "Linear": "input-dim=4 output-dim=4",
    "LogSoftmax": "dim=4",
    "NaturalGradientAffine": "input-dim=4 output-dim=4",
    "NoOp": "dim=4",
    "Normalize": "dim=4",
    "PerElementOffset": "dim=4",
    "PerElementScale": "dim=4",
    "Permute": "column-map=1,0,3,2",
    "RectifiedLinear": "dim=4",
    "RepeatedAffine": "input-dim=4 output-dim=4 num-repeats=2",
    "ScaleAndOffset": "dim=4",
    "Sigmoid": "dim=4",
    "Softmax": "dim=4",
    "Tanh": "dim=4",
}
"""Component types that map DIM columns to DIM columns, and the rest of their config lines."""


@attrs.define
class NetworkWriter:
    """Collects config lines.

    Attributes:
        rng: The source of all choices.
        sources: All sources that descriptors can read, DIM columns each: names of nodes, or
            forwarding descriptors for nodes that exist at some times only.
        inputs, components, nodes: The lines so far.
        states: Names of component nodes that hold the state of a recurrence.
    """

    rng: Random
    sources: list[str] = attrs.field(factory=list)
    inputs: list[str] = attrs.field(factory=list)
    components: list[str] = attrs.field(factory=list)
    nodes: list[str] = attrs.field(factory=list)
    states: list[str] = attrs.field(factory=list)

    def component(self, kind: str, options: str) -> str:
        """Adds a component of type `kind` + "Component"; returns its name."""
        name = f"c{len(self.components)}"
        self.components.append(f"component name={name} type={kind}Component {options}")
        return name

    def node(self, name: str, component: str, descriptor: str) -> str:
        """Adds a component node; returns its name."""
        self.nodes.append(f"component-node name={name} component={component} input={descriptor}")
        return name

    def layer(self, name: str, kind: str, options: str, descriptor: str) -> str:
        """Adds a component and its node; returns the name of the node."""
        return self.node(name, self.component(kind, options), descriptor)

    def columns(self, name: str, source: str, offset: int, dim: int = DIM) -> str:
        """Adds a node for some columns of a node; returns its name."""
        self.nodes.append(
            f"dim-range-node name={name} input-node={source} dim-offset={offset} dim={dim}"
        )
        return name

    def text(self) -> str:
        """The config of the network."""
        return "\n".join([*self.inputs, *self.components, *self.nodes])

    # ---- descriptors ----

    SUMS = ("leaf",) * 5, ("sum", "sum", "failover", "optional", "constant")
    """The kinds of descriptors that are no Append, and those of them that hold others."""

    NEAR = (-2, 2)
    """The least and the most frames of an Offset."""

    TAPS = range(-2, 3)
    """The times that a component can splice."""

    NEXT = 1
    """The frames of an Offset in a Switch."""

    FAR, FARTHER = (-7, 3, 6), (-8, 5)
    """Frames of an Offset in a Failover, and of an optional one."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """The kinds of forwarding descriptors, each as often as it is drawn."""
        return ("node",) * 4 + ("offset",) * 4 + ("scale", "round", "replace", "switch")

    def read(self, dim: int) -> str:
        """A source of `dim` columns; most often the last one."""
        return self.rng.choice([*self.sources, *self.sources[-1:] * 3])

    def read_again(self, dim: int) -> str:
        """Another source of `dim` columns."""
        return self.rng.choice(self.sources)

    def near(self, source: str) -> str:
        """A source at a time nearby."""
        return f"Offset({source}, {self.rng.randint(*self.NEAR)})"

    def leaf(self, dim: int = DIM) -> str:
        """A forwarding descriptor; most often of the last source."""
        rng, source = self.rng, self.read(dim)
        match rng.choice(self.leaves):
            case "offset":
                return self.near(source)
            case "scale":
                return f"Scale({rng.choice([-1.0, 0.5])}, {source})"
            case "round":
                return f"Round({source}, {rng.randint(2, 3)})"
            case "replace":
                return f"ReplaceIndex({source}, t, {rng.randint(0, 1)})"
            case "switch":
                return f"Switch({source}, Offset({self.read_again(dim)}, {self.NEXT}))"
            case _:
                return source

    def sum(self, dim: int = DIM, depth: int = 0) -> str:
        """A descriptor that is not an Append; some of its terms can be optional."""
        rng, (leaves, nested) = self.rng, self.SUMS
        match rng.choice(leaves + nested * (depth < 2)):
            case "sum":
                return f"Sum({self.sum(dim, depth + 1)}, {self.sum(dim, depth + 1)})"
            case "failover":
                far = f"Offset({self.read_again(dim)}, {rng.choice(self.FAR)})"
                first = rng.choice([far, self.leaf(dim)])
                return f"Failover({first}, {self.sum(dim, depth + 1)})"
            case "optional":
                far = f"Offset({self.read_again(dim)}, {rng.choice(self.FARTHER)})"
                return f"Sum({self.leaf(dim)}, IfDefined({far}))"
            case "constant":
                return f"Sum(Const({rng.choice([1.5, -0.25])}, {dim}), {self.leaf(dim)})"
            case _:
                return self.leaf(dim)


# ---- layers: each adds a source ----


def add_rows(writer: NetworkWriter, name: str) -> None:
    """A component that works row by row; sometimes another node uses the same component."""
    kind = writer.rng.choice(sorted(ROW_BY_ROW))
    component = writer.component(kind, ROW_BY_ROW[kind])
    if writer.rng.randrange(6) == 0:
        writer.sources.append(writer.node(f"{name}.1", component, writer.sum()))
    writer.sources.append(writer.node(name, component, writer.sum()))


def add_append(writer: NetworkWriter, name: str) -> None:
    """A component of several parts."""
    kind = writer.rng.choice(["Affine", "ElementwiseProduct", "SumBlock", "BlockAffine"])
    options = "input-dim=8 output-dim=4" + " num-blocks=2" * (kind == "BlockAffine")
    descriptor = f"Append({writer.sum()}, {writer.sum()})"
    writer.sources.append(writer.layer(name, kind, options, descriptor))


def add_wide(writer: NetworkWriter, name: str) -> None:
    """A component with more columns, read through one or two dim-range nodes."""
    wide = writer.layer(f"{name}.wide", "Affine", "input-dim=4 output-dim=9", writer.sum())
    for number in range(writer.rng.randint(1, 2)):
        offset = writer.rng.randint(0, 5)
        writer.sources.append(writer.columns(f"{name}.{number}", wide, offset))


def add_tdnn(writer: NetworkWriter, name: str) -> None:
    """A component that splices several times itself."""
    options = f"input-dim=4 output-dim=4 time-offsets={time_offsets(writer.rng, writer.TAPS)}"
    writer.sources.append(writer.layer(name, "Tdnn", options, writer.sum()))


def add_convolution(writer: NetworkWriter, name: str) -> None:
    """A convolution over time and height; context that it does not require may be missing."""
    rng = writer.rng
    offsets = time_offsets(rng)
    required = rng.choice(offsets.split(","))
    heights = rng.choice(["0", "-1,0,1", "0,1"])
    options = (
        "num-filters-in=2 num-filters-out=2 height-in=2 height-out=2 "
        f"height-offsets={heights} time-offsets={offsets} "
        f"required-time-offsets={rng.choice([required, offsets])}"
    )
    writer.sources.append(writer.layer(name, "TimeHeightConvolution", options, writer.sum()))


def add_subsampling_convolution(writer: NetworkWriter, name: str) -> None:
    """A convolution that halves the height, and a maximum over pairs of filters."""
    wide = writer.layer(f"{name}.wide", "Affine", "input-dim=4 output-dim=8", writer.sum())
    options = (
        "num-filters-in=2 num-filters-out=2 height-in=4 height-out=2 height-subsample-out=2 "
        f"height-offsets=0,1 time-offsets={time_offsets(writer.rng)}"
    )
    writer.sources.append(writer.layer(name, "TimeHeightConvolution", options, wide))


def add_statistics(writer: NetworkWriter, name: str) -> None:
    """Mean, and sometimes deviation, over some frames."""
    rng = writer.rng
    deviation = rng.randrange(2) == 1
    period = rng.randint(1, 2)
    extraction = (
        f"input-dim=4 input-period=1 output-period={period} "
        f"include-variance={str(deviation).lower()}"
    )
    extract = writer.layer(f"{name}.extract", "StatisticsExtraction", extraction, writer.leaf())
    left, right = rng.choice([(0, 1), (1, 0), (1, 1), (2, 2)])
    pooling = (
        f"input-dim={9 if deviation else 5} input-period={period} "
        f"left-context={period * left} right-context={period * right} "
        f"num-log-count-features=0 output-stddevs={str(deviation).lower()} variance-floor=0.01"
    )
    pool = writer.layer(f"{name}.pool", "StatisticsPooling", pooling, f"Round({extract}, {period})")
    read = f"Round({pool}, {period})"
    if deviation:
        read = writer.layer(name, "Affine", "input-dim=8 output-dim=4", read)
    writer.sources.append(read)


def add_attention(writer: NetworkWriter, name: str) -> None:
    """Attention to neighbouring frames; some may be missing."""
    rng = writer.rng
    left, right = rng.choice([(0, 1), (1, 0), (1, 1), (2, 0), (1, 2)])
    query = 2 + left + 1 + right
    projection = f"input-dim=4 output-dim={2 + 4 + query}"
    source = writer.layer(f"{name}.affine", "Affine", projection, writer.sum())
    options = (
        f"key-dim=2 value-dim=4 num-left-inputs={left} num-right-inputs={right} "
        f"num-left-inputs-required={rng.randint(0, left)} "
        f"num-right-inputs-required={rng.randint(0, right)} output-context=false"
    )
    writer.sources.append(writer.layer(name, "RestrictedAttention", options, source))


def add_recurrence(writer: NetworkWriter, name: str) -> None:
    """A component that reads its own past, directly or through another component."""
    rng = writer.rng
    delay = rng.randint(1, 3)
    state = f"{name}.state" if rng.randrange(2) else name
    past = f"IfDefined(Offset({state}, -{delay}))"
    if rng.randrange(4) == 0:
        past = f"Failover(Offset({state}, -{delay}), {writer.leaf()})"
    if rng.randrange(2):
        writer.layer(name, "Affine", "input-dim=8 output-dim=4", f"Append({writer.sum()}, {past})")
    else:
        kind = rng.choice(["Tanh", "Sigmoid", "NoOp", "RectifiedLinear"])
        writer.layer(name, kind, "dim=4", f"Sum({writer.sum()}, {past})")
    if state != name:
        kind = rng.choice(["Tanh", "BackpropTruncation", "Sigmoid"])
        writer.layer(state, kind, "dim=4", name)
    writer.states.append(state)
    writer.sources.append(name)


def add_clockwork(writer: NetworkWriter, name: str) -> None:
    """A recurrence that is computed at every second or third frame."""
    period = writer.rng.randint(2, 3)
    descriptor = f"Append({writer.sum()}, IfDefined(Offset({name}, -{period})))"
    writer.states.append(writer.layer(name, "Affine", "input-dim=8 output-dim=4", descriptor))
    writer.sources.append(f"Round({name}, {period})")


def add_lstm(writer: NetworkWriter, name: str) -> None:
    """A long short-term memory."""
    writer.sources.append(_lstm(writer, name, f"{name}.m"))


def add_projected_lstm(writer: NetworkWriter, name: str) -> None:
    """A long short-term memory with a projected output, part of which is fed back."""
    output = _lstm(writer, name, f"{name}.r")
    projection = writer.layer(f"{name}.rp", "Affine", "input-dim=4 output-dim=12", output)
    for part, offset in zip("rpq", writer.rng.sample([0, DIM, 2 * DIM], 3), strict=True):
        writer.columns(f"{name}.{part}", projection, offset)
    writer.sources += [f"{name}.p", f"{name}.q"]
    writer.states.append(projection)


def _lstm(writer: NetworkWriter, name: str, past: str) -> str:
    """Adds gates and cell; the gates read the past of a node. Returns the node of the output."""
    delay = writer.rng.randint(1, 3)
    gates = writer.layer(
        f"{name}.gates",
        "Affine",
        "input-dim=8 output-dim=16",
        f"Append({writer.sum()}, IfDefined(Offset({past}, -{delay})))",
    )
    cell = writer.layer(
        f"{name}.cell",
        "LstmNonlinearity",
        "cell-dim=4 self-repair-scale=0",
        f"Append({gates}, IfDefined(Offset({name}.c, -{delay})))",
    )
    writer.columns(f"{name}.c", cell, 0)
    writer.states.append(cell)
    return writer.columns(f"{name}.m", cell, DIM)


def add_distribution(writer: NetworkWriter, name: str) -> None:
    """Columns become indexes x."""
    descriptor = f"Append({writer.leaf()}, {writer.leaf()})"
    writer.sources.append(writer.layer(name, "Distribute", "input-dim=8 output-dim=4", descriptor))


LAYERS: dict[str, Callable[[NetworkWriter, str], None]] = {
    "rows": add_rows,
    "append": add_append,
    "wide": add_wide,
    "tdnn": add_tdnn,
    "convolution": add_convolution,
    "subsampling": add_subsampling_convolution,
    "statistics": add_statistics,
    "attention": add_attention,
    "recurrence": add_recurrence,
    "clockwork": add_clockwork,
    "lstm": add_lstm,
    "distribution": add_distribution,
}
"""The kinds of layers of random networks."""

OTHER_LAYERS = {"projected-lstm": add_projected_lstm}
"""Further kinds, apart from LAYERS so that seeds keep giving the same networks."""

OFTEN = ("rows", "rows", "rows", "append", "wide", "tdnn", "convolution", "recurrence")


def time_offsets(rng: Random, taps: Sequence[int] = range(-2, 3)) -> str:
    """One to three times, as a list in a config line."""
    chosen = rng.sample(taps, rng.randint(1, 3))
    return ",".join(map(str, sorted(chosen)))


# ---- networks ----


def write_network(
    rng: Random, kinds: Sequence[str] | None = None
) -> tuple[NetworkWriter, tuple[str, ...]]:
    """Writes a network of a few layers with one or two inputs and outputs.

    Args:
        rng: The source of all choices.
        kinds: The kinds of its layers, keys of LAYERS or OTHER_LAYERS; drawn if None.

    Returns:
        The network, and the kinds of its layers.
    """
    writer = NetworkWriter(rng)
    for name in ["input", "side"][: rng.randint(1, 2)]:
        writer.inputs.append(f"input-node name={name} dim={DIM}")
        writer.sources.append(name)
    if kinds is None:
        kinds = [rng.choice([*LAYERS, *OFTEN]) for _ in range(rng.randint(1, MAX_LAYERS))]
    for number, kind in enumerate(kinds):
        (LAYERS | OTHER_LAYERS)[kind](writer, f"layer{number}")
    for name in ["output", "output2"][: rng.randint(1, 2)]:
        writer.nodes.append(f"output-node name={name} input={writer.sum()}")
    return writer, tuple(kinds)
