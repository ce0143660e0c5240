"""Random networks, as config lines, and random requests for property tests.

Nodes that descriptors name have DIM columns; components with another number of columns are read
through a dim-range node, or fed by Append.
"""

from __future__ import annotations

import functools

import attrs
from hypothesis import reject
from hypothesis import strategies as st
from nnet3_compiler import CompilationError, NnetComputation, compile_computation
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import (
    ComputationRequest,
    IoSpecification,
    NotComputableError,
    UnboundedComputationError,
)

DIM = 4

ROW_BY_ROW = {
    "AffineComponent": "input-dim=4 output-dim=4",
    "NaturalGradientAffineComponent": "input-dim=4 output-dim=4",
    "LinearComponent": "input-dim=4 output-dim=4",
    "RectifiedLinearComponent": "dim=4",
    "SigmoidComponent": "dim=4",
    "TanhComponent": "dim=4",
    "LogSoftmaxComponent": "dim=4",
    "NoOpComponent": "dim=4",
    "NormalizeComponent": "dim=4",
    "BatchNormComponent": "dim=4",
    "PerElementOffsetComponent": "dim=4",
    "FixedScaleComponent": "dim=4",
    "ClipGradientComponent": "dim=4 clipping-threshold=5",
    "PermuteComponent": "column-map=1,0,3,2",
}
"""Component types with DIM columns on both sides, and the rest of their config lines."""


@attrs.define
class Builder:
    """Collects config lines; names of nodes that descriptors may use."""

    names: list[str]
    components: list[str] = attrs.field(factory=list)
    nodes: list[str] = attrs.field(factory=list)

    def component(self, line: str) -> str:
        """Adds a component; returns its name."""
        name = f"c{len(self.components)}"
        self.components.append(f"component name={name} {line}")
        return name


@st.composite
def descriptors(draw: st.DrawFn, names: list[str], past: list[str], depth: int = 0) -> str:
    """A descriptor of DIM columns; nodes in `past` may be read at earlier times."""
    kinds = ["node"] * 3 + ["offset"] * 3 + ["scale", "cycle", "cycle"]
    if depth < 2:
        kinds += ["sum", "sum", "failover", "round", "replace", "const"]
    kind = draw(st.sampled_from(kinds))
    name = draw(st.sampled_from(names))
    match kind:
        case "offset":
            return f"Offset({name}, {draw(st.integers(-2, 2))})"
        case "scale":
            return f"Scale({draw(st.sampled_from([-1.0, 0.5]))}, {name})"
        case "cycle" if past:
            back = f"Offset({draw(st.sampled_from(past))}, -{draw(st.integers(1, 3))})"
            return f"IfDefined({back})"
        case "round":
            return f"Round({name}, {draw(st.integers(2, 3))})"
        case "replace":
            return f"ReplaceIndex({name}, t, 0)"
        case "sum" | "failover":
            first = draw(descriptors(names, past, depth + 1))
            second = draw(descriptors(names, past, depth + 1))
            return f"{kind.capitalize()}({first}, {second})"
        case "const":
            return f"Sum(Const({draw(st.sampled_from([1.5, -0.25]))}, {DIM}), {name})"
    return name


@st.composite
def layers(draw: st.DrawFn, builder: Builder, name: str, later: list[str]) -> None:
    """Adds a component node of DIM columns, with what it needs."""
    kind = draw(st.sampled_from(["rows"] * 6 + ["tdnn", "wide", "append", "product", "twice"]))
    before = list(builder.names)
    source = draw(descriptors([*before, *before[-1:] * 3], later))
    if kind == "tdnn":
        offsets = sorted(draw(st.sets(st.integers(-2, 2), min_size=1, max_size=3)))
        text = ",".join(map(str, offsets))
        line = f"type=TdnnComponent input-dim=4 output-dim=4 time-offsets={text}"
    elif kind in ("append", "product"):
        source = f"Append({source}, {draw(descriptors(before, later))})"
        line = "type=AffineComponent input-dim=8 output-dim=4"
        if kind == "product":
            line = "type=ElementwiseProductComponent input-dim=8 output-dim=4"
    elif kind == "wide":
        line = "type=AffineComponent input-dim=4 output-dim=6"
        offset = draw(st.integers(0, 2))
        component = builder.component(line)
        builder.nodes += [
            f"component-node name={name}.wide component={component} input={source}",
            f"dim-range-node name={name} input-node={name}.wide dim-offset={offset} dim=4",
        ]
        builder.names.append(name)
        return
    else:
        component_type = draw(st.sampled_from(sorted(ROW_BY_ROW)))
        line = f"type={component_type} {_arguments(component_type)}"
    component = builder.component(line)
    if kind == "twice":
        builder.nodes.append(f"component-node name={name}.1 component={component} input={source}")
        source = draw(descriptors([*before, f"{name}.1"], later))
    builder.nodes.append(f"component-node name={name} component={component} input={source}")
    builder.names.append(name)


def _arguments(component_type: str) -> str:
    if component_type == "FixedScaleComponent":
        return "dim=4 scale=0.5"
    return ROW_BY_ROW[component_type]


@st.composite
def networks(draw: st.DrawFn) -> Nnet:
    """A network with one or two inputs and outputs and up to seven layers."""
    builder = Builder(names=["input", "side"][: draw(st.integers(1, 2))])
    inputs = [f"input-node name={name} dim=4" for name in builder.names]
    names = [f"layer{number}" for number in range(draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7])))]
    for number, name in enumerate(names):
        draw(layers(builder, name, names[number:]))
    outputs = [
        f"output-node name={name} input={draw(descriptors(builder.names[-2:], []))}"
        for name in ["output", "output2"][: draw(st.integers(1, 2))]
    ]
    return _parsed("\n".join([*inputs, *builder.components, *builder.nodes, *outputs]))


@functools.lru_cache(maxsize=64)
def _parsed(config: str) -> Nnet:
    return parse_config(config)


@st.composite
def requests(draw: st.DrawFn, nnet: Nnet) -> ComputationRequest:
    """A request of one to three sequences, with or without derivatives."""
    sequences = draw(st.integers(1, 3))
    derivatives = draw(st.sampled_from([True, True, True, False]))
    length = draw(st.integers(1, 6))
    step = draw(st.sampled_from([1, 1, 2]))
    return ComputationRequest(
        inputs=[
            IoSpecification.from_range(
                node.name,
                -6,
                length + 6,
                sequences,
                has_deriv=derivatives and draw(st.booleans()),
            )
            for node in nnet.input_nodes
        ],
        outputs=[
            IoSpecification.from_range(
                node.name,
                0,
                length,
                sequences,
                t_step=step,
                has_deriv=derivatives and (number == 0 or draw(st.booleans())),
            )
            for number, node in enumerate(nnet.output_nodes)
        ],
        need_model_derivative=derivatives and draw(st.sampled_from([True, True, False])),
        store_component_stats=draw(st.booleans()),
    )


@st.composite
def examples(draw: st.DrawFn) -> tuple[Nnet, NnetComputation]:
    """A network and the computation of a request for it."""
    nnet = draw(networks())
    request = draw(requests(nnet))
    try:
        return nnet, compile_computation(nnet, request)
    except (NotComputableError, UnboundedComputationError, CompilationError):
        reject()
