"""Random networks of all component types, of any width, as config lines.

Unlike in `network_generator`, columns matter: nodes have one to six columns, or more than a vector
of the processor holds, and many nodes are parts of wider matrices.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import attrs
from component_forms import from_config
from component_options import ROW_BY_ROW
from network_generator import NetworkWriter, time_offsets
from nnet3_descriptors.components import ComponentProperties, component_class

MOST_LAYERS = 5

REPAIR = "self-repair-scale=0.05"

REPAIRED = (
    "GruNonlinearity",
    "LstmNonlinearity",
    "OutputGruNonlinearity",
    "RectifiedLinear",
    "Sigmoid",
    "Tanh",
)
"""Component types with self-repair, which pushes units out of saturation."""

RANDOM = ("Dropout", "DropoutMask", "GeneralDropout", "SpecAugmentTimeMask")
"""Component types that draw random masks."""

BOUNDED = ("GruNonlinearity", "Normalize", "OutputGruNonlinearity", "Sigmoid", "Softmax", "Tanh")
"""Component types whose output stays small in a recurrence of any length."""

UNSTABLE = ("Convolution", "ElementwiseProduct", "LogSoftmax", "Maxpooling", "Pnorm", "SumGroup")
"""Component types that make the values of a recurrence grow, or that forget nothing."""

LOOP = ".loop"
"""The end of the names of nodes that read their own past."""

WIDE = (16, 33, 64, 65, 70, 96, 130)
"""Numbers of columns that just fill vectors, panels and tiles, or just do not."""


@attrs.frozen
class Source:
    """A source that descriptors can read.

    Attributes:
        text: A forwarding descriptor.
        dim: Its number of columns.
        node: The node, if it can have a dim-range node; else "".
    """

    text: str
    dim: int
    node: str = ""


@attrs.define
class WidthWriter(NetworkWriter):
    """Writes networks whose sources have any number of columns.

    Attributes:
        is_looped: Whether the network is for looped computation, and so the same at all times.
        has_x: Whether requests have indexes x other than 0.
        is_wide: Whether some layers have many columns.
        kinds: The component types, and other features, that were drawn.
        sources: All sources that descriptors can read so far.
    """

    is_looped: bool = False
    has_x: bool = False
    is_wide: bool = False
    kinds: set[str] = attrs.field(factory=set)
    sources: list[Source] = attrs.field(factory=list)

    def chance(self, one_in: int) -> bool:
        """True in one of `one_in` cases."""
        return self.rng.randrange(one_in) == 0

    def width(self) -> int:
        """A number of columns."""
        if self.is_wide and self.chance(2):
            return self.rng.choice(WIDE)
        return self.rng.choice([1, 1, 2, 3, 4, 4, 5, 6])

    # ---- nodes ----

    def add_input(self, name: str) -> None:
        """Adds an input node."""
        dim = self.width()
        self.inputs.append(f"input-node name={name} dim={dim}")
        self.sources.append(Source(name, dim, name))

    def add(self, kind: str, options: str, descriptor: str, name: str = "") -> Source:
        """Adds a component of type `kind` + "Component", and its node."""
        name = name or f"n{len(self.components)}"
        options = self._with_settings(kind, options, name)
        component = from_config(f"{kind}Component", options)
        self.kinds.add(kind)
        number = self.component(kind, options)
        self.node(name, number, descriptor)
        may_share = component.properties & ComponentProperties.SIMPLE and kind not in RANDOM
        if kind.endswith("Nonlinearity") and REPAIR in options:
            may_share = False  # see _with_settings
        if may_share and self.chance(12) and not name.endswith(LOOP):
            self.kinds.add("shared component")
            again = self.node(f"{name}.again", number, descriptor)
            self.sources.append(Source(again, component.output_dim, again))
        return Source(name, component.output_dim, name)

    def _with_settings(self, kind: str, options: str, name: str) -> str:
        """Options of a component for the node of this name, with random common options."""
        if kind == "Composite":  # the parts of a composite have their own learning rates
            return options
        # Backprops of cells count frames, and their self-repair depends on the counts so far. So of
        # several calls each repairs differently, unless consolidate_model_update makes them one.
        is_called_once = not kind.endswith("Nonlinearity") or not name.endswith(LOOP)
        if kind in REPAIRED and is_called_once and self.chance(4):
            options = options.replace("self-repair-scale=0", "") + f" {REPAIR}"
            self.kinds.add("self-repair")
        if "learning_rate" in attrs.fields_dict(component_class(f"{kind}Component")):
            if self.chance(8):
                options += f" learning-rate{self.rng.choice(['', '-factor'])}=0.0"
                self.kinds.add("frozen")
            elif self.chance(8):
                options += " max-change=0.5 l2-regularize=0.01 learning-rate-factor=0.25"
        return options

    def part(self, source: Source, offset: int, dim: int, name: str = "") -> Source:
        """Adds a node for some columns of another."""
        name = name or f"n{len(self.components)}.{len(self.nodes)}"
        self.kinds.add("one column" if dim == 1 else "range")
        return Source(self.columns(name, source.node, offset, dim), dim)

    def source_of(self, dim: int) -> Source:
        """A source of `dim` columns: a part of a wider source, or one through a layer."""
        wider = [each for each in self.sources if each.node and each.dim > dim]
        if wider and not self.chance(4):
            source = self.rng.choice(wider)
            source = self.part(source, self.rng.randint(0, source.dim - dim), dim)
        else:
            source = self.rng.choice(self.sources[-3:])
            kind = self.rng.choice(["Affine", "Linear", "NaturalGradientAffine"])
            options = f"input-dim={source.dim} output-dim={dim}"
            source = self.add(kind, options, source.text)
        self.sources.append(source)
        return source

    # ---- descriptors ----

    def source(self, dim: int) -> Source:
        """A source of `dim` columns; most often the last one."""
        fitting = [each for each in self.sources if each.dim == dim]
        if not fitting or self.chance(5):
            return self.source_of(dim)
        return self.rng.choice([*fitting, *fitting[-1:] * 2])

    SUMS = ("leaf",) * 6, NetworkWriter.SUMS[1]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The kinds of forwarding descriptors: in a loop, none at a fixed time."""
        kinds = ("node",) * 5 + ("offset",) * 4 + ("scale", "round", "switch")
        return kinds if self.is_looped else (*kinds, "replace")

    def read(self, dim: int) -> str:
        """A source of `dim` columns."""
        return self.source(dim).text

    read_again = read

    def near(self, source: str) -> str:
        """A source at a time nearby, in rare cases at another x."""
        x = f", {self.rng.choice([-1, 1])}" if self.has_x and self.chance(6) else ""
        return f"Offset({source}, {self.rng.randint(*self.NEAR)}{x})"

    def descriptor(self, dim: int) -> str:
        """A descriptor of `dim` columns, in one to four parts."""
        rng = self.rng
        whole = [each for each in self.sources if each.dim == dim]
        most = min(dim, 2 if dim > max(each.dim for each in self.sources) else 4)
        count = 1 if whole and rng.randrange(3) else rng.randint(1, most)
        cuts = [0, *sorted(rng.sample(range(1, dim), count - 1)), dim]
        parts = [self.sum(b - a) for a, b in itertools.pairwise(cuts)]
        return parts[0] if count == 1 else f"Append({', '.join(parts)})"


# ---- layers: each returns what it adds ----


def _options(writer: WidthWriter, kind: str) -> tuple[int, str]:
    """Columns of the input, and options, of a component that works row by row."""
    affine = ("Affine", "Linear", "NaturalGradientAffine", "FixedAffine")
    dims = ("Sigmoid", "Tanh", "RectifiedLinear", "BatchNorm", "NoOp", "Softmax", "FixedScale")
    if writer.is_wide and kind in affine:
        dim = writer.width()
        return dim, f"input-dim={dim} output-dim={writer.width()}"
    if kind in dims and writer.chance(2):
        # Reads the last source, whatever its width.
        dim = writer.sources[-1].dim
        return dim, f"dim={dim}"
    return ROW_BY_ROW[kind](writer.rng)


def add_rows(writer: WidthWriter) -> Source:
    """A component that works row by row."""
    kind = writer.rng.choice(sorted(ROW_BY_ROW))
    dim, options = _options(writer, kind)
    return writer.add(kind, options, writer.descriptor(dim))


def add_affine(writer: WidthWriter) -> Source:
    """An affine component and a nonlinearity, as in most layers of real networks."""
    kind = writer.rng.choice(["Affine", "Linear", "NaturalGradientAffine", "FixedAffine"])
    dim, options = _options(writer, kind)
    source = writer.add(kind, options, writer.descriptor(dim))
    kinds = ["RectifiedLinear", "Sigmoid", "Tanh", "BatchNorm"]
    kinds += ["Normalize"] * (source.dim > 1)  # of one column, only its sign would remain
    kind = writer.rng.choice(kinds)
    key = "input-dim" if kind == "Normalize" else "dim"
    return writer.add(kind, f"{key}={source.dim}", source.text)


def add_splice(writer: WidthWriter) -> Source:
    """An affine component on several times of a node; sometimes another on the result."""
    source = _splice(writer, writer.source(writer.width()))
    if writer.chance(3):
        source = _splice(writer, source)
        writer.kinds.add("splices in turn")
    if writer.chance(2):
        return source
    return writer.add("RectifiedLinear", f"dim={source.dim}", source.text)


def _splice(writer: WidthWriter, source: Source) -> Source:
    """An affine component on several times of a node."""
    rng = writer.rng
    offsets = rng.choice([(-1, 0, 1), (-2, 0), (0, 1), (-3, 0, 3), (-1, 1)])
    parts = [f"Offset({source.text}, {t})" if t else source.text for t in offsets]
    dim, extra = source.dim * len(parts), ""
    if writer.chance(4):
        more = writer.width()
        parts.insert(rng.randint(0, len(parts)), writer.sum(more))
        dim += more
    kind = rng.choice(["Affine", "Linear", "NaturalGradientAffine"])
    options = f"input-dim={dim} output-dim={writer.width()}{extra}"
    writer.kinds.add("splice")
    return writer.add(kind, options, f"Append({', '.join(parts)})")


def add_late_term(writer: WidthWriter) -> Source:
    """An affine component on a source twice, once with a term that takes part some chunks later."""
    rng, source = writer.rng, writer.source(writer.width())
    near, later = source.text, rng.choice([source, writer.source(source.dim)])
    far = f"Offset({later.text}, -{rng.choice([2, 4, 6, 8, 12])})"
    term = rng.choice([f"Sum({near}, IfDefined({far}))", f"Failover({far}, {near})"])
    parts = [term, near] if rng.randrange(4) else [near, term]
    kind = rng.choice(["Affine", "Linear", "NaturalGradientAffine"])
    options = f"input-dim={2 * source.dim} output-dim={writer.width()}"
    writer.kinds.add("late term")
    return writer.add(kind, options, f"Append({', '.join(parts)})")


def add_tdnn(writer: WidthWriter) -> Source:
    """A component that splices several times itself."""
    rng, dim = writer.rng, writer.width()
    options = (
        f"input-dim={dim} output-dim={writer.width()} time-offsets={time_offsets(rng)} "
        f"use-bias={rng.choice(['true', 'false'])}"
    )
    return writer.add("Tdnn", options, writer.descriptor(dim))


def add_convolution(writer: WidthWriter) -> Source:
    """A convolution over time and height; context that it does not require may be missing."""
    rng = writer.rng
    filters, step = rng.randint(1, 3), rng.choice([1, 1, 2])
    height = rng.randint(3, 5)
    out = filters if rng.randrange(2) else rng.randint(1, 3)
    if writer.is_wide:
        filters, out = 16, rng.choice([16, 17])
    offsets = time_offsets(rng)
    required = rng.choice([rng.choice(offsets.split(",")), offsets])
    options = (
        f"num-filters-in={filters} num-filters-out={out} height-in={height} "
        f"height-out={-(-height // step)} height-subsample-out={step} "
        f"height-offsets={rng.choice(['0', '-1,0,1', '0,1'])} time-offsets={offsets} "
        f"required-time-offsets={required} bias-stddev=1"
    )
    return writer.add("TimeHeightConvolution", options, writer.descriptor(filters * height))


def add_statistics(writer: WidthWriter) -> Source:
    """Mean, and sometimes deviation, over some frames."""
    rng = writer.rng
    deviation, period, dim = rng.randrange(2), rng.randint(1, 2), writer.width()
    options = (
        f"input-dim={dim} input-period=1 output-period={period} "
        f"include-variance={'true' if deviation else 'false'}"
    )
    extract = writer.add("StatisticsExtraction", options, writer.leaf(dim))
    left, right = (period * n for n in rng.choice([(0, 1), (1, 0), (1, 1), (2, 2), (3, 0)]))
    options = (
        f"input-dim={extract.dim} input-period={period} left-context={left} "
        f"right-context={right} num-log-count-features={rng.randint(0, 2)} "
        f"output-stddevs={'true' if deviation else 'false'} variance-floor=0.01"
    )
    pool = writer.add("StatisticsPooling", options, f"Round({extract.text}, {period})")
    read = Source(f"Round({pool.text}, {period})", pool.dim)
    if writer.chance(2):
        return read
    return writer.add("Affine", f"input-dim={read.dim} output-dim={writer.width()}", read.text)


def add_attention(writer: WidthWriter) -> Source:
    """Attention to neighbouring frames; some may be missing."""
    rng = writer.rng
    heads, key, value = (rng.randint(1, 3) for _ in range(3))
    left, right = rng.choice([(0, 1), (1, 0), (1, 1), (2, 0), (1, 2)])
    options = (
        f"num-heads={heads} key-dim={key} value-dim={value} num-left-inputs={left} "
        f"num-right-inputs={right} num-left-inputs-required={rng.randint(0, left)} "
        f"num-right-inputs-required={rng.randint(0, right)} time-stride={rng.choice([1, 1, 2])} "
        f"output-context={rng.choice(['true', 'false'])} key-scale={rng.choice([0.3, 1.0])}"
    )
    dim = heads * (2 * key + value + left + 1 + right)
    source = writer.add("Affine", f"input-dim={2} output-dim={dim}", writer.descriptor(2))
    return writer.add("RestrictedAttention", options, source.text)


def add_recurrence(writer: WidthWriter) -> Source:
    """A component of any type that works row by row and reads a part of its own past."""
    rng, kinds = writer.rng, BOUNDED
    if not writer.is_looped:
        kinds = tuple(sorted({*ROW_BY_ROW} - {*UNSTABLE, *RANDOM}))
    kind = rng.choice(kinds)
    dim, options = _options(writer, kind)
    component = from_config(f"{kind}Component", options)
    back, delay = rng.randint(1, min(dim, component.output_dim)), rng.randint(1, 3)
    offset = rng.randint(0, component.output_dim - back)
    is_whole = back == component.output_dim
    others = writer.sum(dim if back == dim else dim - back)
    start = writer.leaf(back) if writer.chance(5) else ""
    name = f"n{len(writer.components)}{LOOP}"
    past = f"Offset({name if is_whole else f'{name}.past'}, -{delay})"
    past = f"Failover({past}, {start})" if start else f"IfDefined({past})"
    text = f"{'Sum' if back == dim else 'Append'}({others}, {past})"
    source = writer.add(kind, options, text, name)
    if not is_whole:
        writer.sources.append(writer.part(source, offset, back, f"{name}.past"))
    writer.kinds.add("recurrence")
    return source


def add_affine_recurrence(writer: WidthWriter) -> Source:
    """An affine component that reads its own past through a nonlinearity."""
    rng, out, delay = writer.rng, writer.width(), writer.rng.choice([1, 1, 2, 3])
    if writer.chance(2):
        source = rng.choice([writer.sources[-1], writer.source(writer.width())])
        offsets = rng.choice([(-1, 0), (-1, 0, 1), (0,), (0, 2)])
        parts = [f"Offset({source.text}, {t})" if t else source.text for t in offsets]
        into = source.dim * len(parts)
    else:
        dims = [writer.width() for _ in range(rng.randint(1, 2))]
        parts, into = [writer.sum(dim) for dim in dims], sum(dims)
    back = out if writer.chance(2) else rng.randint(1, out)
    name = f"n{len(writer.components)}{LOOP}"
    state = f"{name}.state{LOOP}"
    past = state if back == out else f"{name}.past"
    parts.insert(0 if writer.chance(4) else len(parts), f"IfDefined(Offset({past}, -{delay}))")
    kind = rng.choice(["Affine", "Linear", "NaturalGradientAffine"])
    stddev = min(0.3, 0.5 / back**0.5)  # so that values do not grow
    options = f"input-dim={into + back} output-dim={out} param-stddev={stddev:.2f}"
    affine = writer.add(kind, options, f"Append({', '.join(parts)})", name)
    kind = rng.choice(["Tanh", "Tanh", "Sigmoid", "BackpropTruncation", "RectifiedLinear"])
    nonlinearity = writer.add(kind, f"dim={out}", affine.text, state)
    if past != state:
        offset = rng.randint(0, out - back)
        writer.sources.append(writer.part(nonlinearity, offset, back, past))
    writer.kinds.add("recurrence")
    writer.sources.append(nonlinearity)
    return affine


def add_projected_recurrence(writer: WidthWriter) -> Source:
    """A recurrence through an affine component, some of whose columns no later step reads."""
    rng, cell = writer.rng, writer.width()
    into, back, ahead = (writer.width() for _ in range(3))
    source = writer.sum(into)
    name = f"n{len(writer.components)}{LOOP}"
    past, delay = f"{name}.r", rng.choice([1, 1, 2, 3])
    affine = writer.add(
        rng.choice(["Affine", "NaturalGradientAffine"]),
        f"input-dim={into + back} output-dim={cell}",
        f"Append({source}, IfDefined(Offset({past}, -{delay})))",
        name,
    )
    kind = rng.choice(["Tanh", "Sigmoid"])
    state = writer.add(kind, f"dim={cell}", affine.text, f"{name}.state{LOOP}")
    kind = rng.choice(["Affine", "Affine", "Linear", "NaturalGradientAffine", "FixedAffine"])
    options = f"input-dim={cell} output-dim={back + ahead}"
    projection = writer.add(kind, options, state.text, f"{name}.rp{LOOP}")
    writer.sources.append(writer.part(projection, 0, back, past))
    writer.kinds.update(("recurrence", "projected recurrence"))
    if writer.chance(2):
        return projection
    return writer.part(projection, back, ahead)


def add_lstm(writer: WidthWriter) -> Source:
    """A long short-term memory, with or without dropout of its gates."""
    rng, cell, delay = writer.rng, writer.width(), writer.rng.choice([1, 1, 3])
    into, dropout = writer.width(), writer.chance(4)
    source, mask = writer.sum(into), ""
    if dropout:
        options = f"output-dim=3 dropout-proportion={rng.choice([0.0, 0.3])}"
        mask = ", " + writer.add("DropoutMask", options, writer.leaf(3)).text
    name = f"n{len(writer.components)}{LOOP}"
    memory, output = f"{name}.c", f"{name}.m"
    gates = writer.add(
        "Affine",
        f"input-dim={into + cell} output-dim={4 * cell}",
        f"Append({source}, IfDefined(Offset({output}, -{delay})))",
        name,
    )
    options = f"cell-dim={cell} self-repair-scale=0 use-dropout={'true' if dropout else 'false'}"
    nonlinearity = writer.add(
        "LstmNonlinearity",
        options,
        f"Append({gates.text}, IfDefined(Offset({memory}, -{delay})){mask})",
        f"{name}.cell{LOOP}",
    )
    writer.sources.append(writer.part(nonlinearity, 0, cell, memory))
    writer.kinds.add("recurrence")
    return writer.part(nonlinearity, cell, cell, output)


def add_distribution(writer: WidthWriter) -> Source:
    """Columns become indexes x."""
    dim, count = writer.width(), writer.rng.randint(2, 3)
    descriptor = f"ReplaceIndex({writer.leaf(dim * count)}, x, 0)"
    return writer.add("Distribute", f"input-dim={dim * count} output-dim={dim}", descriptor)


def add_truncation(writer: WidthWriter) -> Source:
    """A component that scales derivatives in the backward pass."""
    dim = writer.width()
    options = f"dim={dim} scale={writer.rng.choice([1.0, 0.7])}"
    return writer.add("BackpropTruncation", options, writer.sum(dim))


LAYERS: dict[str, Callable[[WidthWriter], Source]] = {
    "affine": add_affine,
    "affine-recurrence": add_affine_recurrence,
    "attention": add_attention,
    "convolution": add_convolution,
    "distribution": add_distribution,
    "late-term": add_late_term,
    "lstm": add_lstm,
    "projected-recurrence": add_projected_recurrence,
    "recurrence": add_recurrence,
    "rows": add_rows,
    "splice": add_splice,
    "statistics": add_statistics,
    "tdnn": add_tdnn,
    "truncation": add_truncation,
}
"""The kinds of layers of random networks."""

RECURRENT = ("affine-recurrence", "projected-recurrence")

OFTEN = ("rows",) * 10 + ("affine", *RECURRENT, "splice", "tdnn", "convolution")

OFTEN_LOOPED = (
    RECURRENT * 4 + ("affine-recurrence",) * 4 + ("late-term",) * 4 + ("lstm",) * 3 + OFTEN[5:]
)
"""The kinds of layers with a recurrence, and with terms that the first chunks lack."""

NOT_LOOPED = ("distribution",)
LOOPED = ("late-term",)


def write_network(rng: Random, *, is_looped: bool = False, has_x: bool = False) -> WidthWriter:
    """Writes a network of a few layers with one or two inputs and outputs.

    Args:
        rng: The source of all choices.
        is_looped: Whether the network is for looped computation; its second input is "ivector".
        has_x: Whether requests have indexes x other than 0.
    """
    writer = WidthWriter(rng, is_looped=is_looped, has_x=has_x, is_wide=rng.randrange(16) == 0)
    writer.add_input("input")
    if writer.chance(3):
        if is_looped:
            dim = writer.width()
            writer.inputs.append(f"input-node name=ivector dim={dim}")
            writer.sources.insert(0, Source("ReplaceIndex(ivector, t, 0)", dim))
            writer.kinds.add("i-vector")
        else:
            writer.add_input("side")
    kinds = sorted({*LAYERS} - {*(NOT_LOOPED if is_looped else LOOPED)})
    for _ in range(rng.randint(1, MOST_LAYERS)):
        kind = rng.choice([*kinds, *(OFTEN_LOOPED if is_looped else OFTEN)])
        writer.sources.append(LAYERS[kind](writer))
    for name in ["output", "output2"][: rng.randint(1, 2)]:
        last = rng.choice(writer.sources[-2:]).dim
        dim = last if rng.randrange(4) else writer.width()
        writer.nodes.append(f"output-node name={name} input={writer.descriptor(dim)}")
    return writer
