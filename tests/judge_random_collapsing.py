"""Compares random networks before and after the network passes, for any number of them.

`python tests/judge_random_collapsing.py --count 1000 --first-seed 1000` prints the seeds whose
outputs differ, and counts what was drawn. A seed draws a network in test mode: chains of components
that can be folded, read at several times, through sums and optional terms, and by several nodes;
components that nodes share; layers of all kinds between, some of them recurrent; affine maps that
splice; i-vectors; and components with names that combined ones would get. nnet3-runtime-reference
runs both networks in float64. Their context and their modulus must be the same, too.
"""

from __future__ import annotations

import re
import sys
from random import Random

import attrs
import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from example_generator import draw_request, is_computable, random_arrays
from judged_seeds import Judged, command_line, differences, judge_seeds
from network_generator import DIM, LAYERS, NetworkWriter, add_projected_lstm, add_recurrence
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest
from nnet3_descriptors import ComponentNode, Nnet, parse_config, set_test_mode
from nnet3_descriptors.editing import (
    CollapseOptions,
    affine_to_tdnn,
    collapse_model,
    for_inference,
    remove_orphans,
    split_affine_maps,
)
from nnet3_graph import ContextError, compute_context
from nnet3_runtime_reference import ReferenceComputer

FOLDED = {
    "Affine": "input-dim=4 output-dim=4",
    "BatchNorm": "dim=4 block-dim=2 target-rms=0.7",
    "Composite": (
        "num-components=2 component1='type=LinearComponent input-dim=4 output-dim=4' "
        "component2='type=AffineComponent input-dim=4 output-dim=4'"
    ),
    "Dropout": "dim=4 dropout-proportion=0.25",
    "FixedAffine": "input-dim=4 output-dim=4",
    "FixedScale": "dim=4",
    "GeneralDropout": "dim=4 block-dim=2 dropout-proportion=0.4",
    "Linear": "input-dim=4 output-dim=4",
    "NaturalGradientAffine": "input-dim=4 output-dim=4",
    "NoOp": "dim=4",
    "Tdnn": "input-dim=4 output-dim=4 time-offsets=-1,0",
    "TimeHeightConvolution": (
        "num-filters-in=2 num-filters-out=2 height-in=2 height-out=2 height-offsets=-1,0,1 "
        "time-offsets=0,1 required-time-offsets=0"
    ),
}
"""Component types that are folded into others, or take others in, or look as if they did."""

SPLICING = {
    "Affine": "input-dim=8 output-dim=4",
    "FixedAffine": "input-dim=8 output-dim=4",
    "Linear": "input-dim=8 output-dim=4",
    "NaturalGradientAffine": "input-dim=8 output-dim=4",
}
"""Those with two parts of the input."""

AFFINE = ("Affine", "NaturalGradientAffine")

TAKEN_BY = {
    "Affine": (*AFFINE, "FixedScale"),
    "BatchNorm": (*AFFINE, "Linear", "Tdnn"),
    "Dropout": (*AFFINE, "Linear", "Tdnn", "TimeHeightConvolution"),
    "FixedAffine": AFFINE,
    "NaturalGradientAffine": (*AFFINE, "FixedScale"),
}
"""The types that take in those of a type; of two in a row, the second is most often one of them."""

DETOURS = {
    "Affine": ("input-dim=4 output-dim=6", "Affine", "input-dim=6 output-dim=4"),
    "BatchNorm": ("dim=4", "Affine", "input-dim=4 output-dim=4"),
    "FixedAffine": ("input-dim=4 output-dim=8", "Linear", "input-dim=8 output-dim=4"),
    "NaturalGradientAffine": ("input-dim=4 output-dim=2", "Affine", "input-dim=2 output-dim=4"),
}
"""Pairs of components with another number of columns, or another order, between them."""


def _descriptor(writer: NetworkWriter, source: str) -> str:
    """A descriptor of one part that reads a source, most often it alone and at one time."""
    rng, other = writer.rng, writer.leaf()
    moved = f"Offset({source}, {rng.randint(-2, 2)})"
    return rng.choice(
        [
            *[source] * 16,
            *[moved] * 10,
            f"Sum({source}, Const(0.5, {DIM}))",
            f"Scale(-0.5, {source})",
            f"Sum({source}, {other})",
            f"Sum({moved}, {source})",
            f"Failover({moved}, {other})",
            f"Sum({other}, IfDefined({moved}))",
            f"Round({source}, 2)",
            f"Switch({source}, {moved})",
        ]
    )


def add_chain(writer: NetworkWriter, name: str, shared: dict[str, str]) -> None:
    """Adds a chain of components, some of which can be folded into the next one.

    Args:
        writer: The network.
        name: Name of the last node.
        shared: One component for each line of options, which other nodes may share.
    """
    rng = writer.rng
    source, kind = writer.leaf(), ""
    length = rng.randint(2, 5)

    def shared_component(kind: str, options: str) -> str:
        line = f"{kind} {options}"
        if line not in shared or rng.randrange(3):
            shared[line] = writer.component(kind, options)
        return shared[line]

    for number in range(length):
        node = name if number == length - 1 else f"{name}.{number}"
        if rng.randrange(8) == 0:
            kind = rng.choice(sorted(DETOURS))
            options, kind_behind, options_behind = DETOURS[kind]
            component = shared_component(kind, options)
            before = writer.node(f"{node}.before", component, _descriptor(writer, source))
            component = shared_component(kind_behind, options_behind)
            source = writer.node(node, component, before)
        elif rng.randrange(4) == 0:
            kind = rng.choice(sorted(SPLICING))
            part = f"Offset({source}, {rng.randint(-2, 2)})"
            parts = rng.choice([(source, part), (part, source), (source, writer.leaf())])
            component = shared_component(kind, SPLICING[kind])
            source = writer.node(node, component, f"Append({', '.join(parts)})")
        else:
            taking = TAKEN_BY.get(kind, sorted(FOLDED))
            kind = rng.choice(taking if rng.randrange(4) else sorted(FOLDED))
            component = shared_component(kind, FOLDED[kind])
            source = writer.node(node, component, _descriptor(writer, source))
        if rng.randrange(5) == 0:
            writer.sources.append(source)
    writer.sources.append(source)


def add_splice(writer: NetworkWriter, name: str) -> None:
    """Adds an affine map of the same parts at several times, which may be a TDNN component."""
    rng = writer.rng
    offsets = rng.sample(range(-3, 4), rng.randint(2, 3))
    sources = [writer.sources[-1], rng.choice(writer.sources)][: rng.randint(1, 2)]
    kind = rng.choice(sorted(SPLICING))
    form = rng.choice(["{}"] * 4 + ["IfDefined({})", "Sum({}, Const(0.5, 4))"])
    parts = [form.format(f"Offset({source}, {t})") for t in offsets for source in sources]
    options = f"input-dim={DIM * len(parts)} output-dim={DIM}"
    writer.sources.append(writer.layer(name, kind, options, f"Append({', '.join(parts)})"))


def draw_network(rng: Random) -> Nnet:
    """A network in test mode, its batch-norms with random statistics."""
    writer = NetworkWriter(rng, sources=["input"], inputs=["input-node name=input dim=4"])
    if rng.randrange(3) == 0:
        writer.inputs.append("input-node name=ivector dim=4")
        writer.sources.append("ReplaceIndex(ivector, t, 0)")
    shared: dict[str, str] = {}
    for number in range(rng.randint(1, 4)):
        name = f"layer{number}"
        kind = rng.randrange(8)
        if kind < 2:
            LAYERS[rng.choice(sorted(LAYERS))](writer, name)
        elif kind < 4:
            rng.choice([add_splice, add_splice, add_recurrence, add_projected_lstm])(writer, name)
        else:
            add_chain(writer, name, shared)
    for name in ["output", "output2"][: rng.choice([1, 1, 2])]:
        last, other = writer.sources[-1], writer.sum()
        descriptor = rng.choice([other, last, last, f"Sum({last}, {other})"])
        writer.nodes.append(f"output-node name={name} input={descriptor}")
    numbers = np.random.default_rng(rng.getrandbits(32))
    nnet = parse_config(writer.text(), rng=numbers)
    statistics = {}
    for component_name, component in zip(nnet.component_names, nnet.components, strict=True):
        if component.type == "BatchNormComponent":
            columns = component.block_dim
            statistics[f"{component_name}.stats_mean"] = numbers.standard_normal(columns)
            statistics[f"{component_name}.stats_var"] = numbers.uniform(0.5, 2.0, columns)
    nnet = set_test_mode(nnet.with_state_dict(statistics))
    return _with_taken_name(rng, nnet) if rng.randrange(2) else nnet


def _with_taken_name(rng: Random, nnet: Nnet) -> Nnet:
    """The network with a component under a name that a combined one would get, if there is any."""
    joined = sorted({*collapse_model(nnet).component_names} - {*nnet.component_names})
    if not joined:
        return nnet
    parts = rng.choice(joined).split(".")
    taken = ".".join(parts[: rng.randint(2, len(parts))])
    names = {rng.choice(nnet.component_names): taken}
    nodes = tuple(
        attrs.evolve(node, component=names.get(node.component, node.component))
        if isinstance(node, ComponentNode)
        else node
        for node in nnet.nodes
    )
    component_names = tuple(names.get(name, name) for name in nnet.component_names)
    return attrs.evolve(nnet, component_names=component_names, nodes=nodes)


def case_of_seed(seed: int) -> tuple[Nnet, ComputationRequest]:
    """A network and a request that it can compute."""
    rng = Random(seed)
    while True:
        nnet = draw_network(rng)
        request = draw_request(rng, nnet, derivatives=False)
        names = {node.name for node in nnet.input_nodes}
        inputs = [io for io in request.inputs if io.name in names]  # no nodes that may be gone
        request = attrs.evolve(request, inputs=inputs)
        if is_computable(nnet, request):
            return nnet, request


def outputs(nnet: Nnet, request: ComputationRequest, seed: int) -> dict[str, np.ndarray]:
    """The outputs by name, (rows, dim), by their definition."""
    computer = ReferenceComputer(nnet, compile_computation(nnet, request))
    return computer.forward(random_arrays(nnet, request.inputs, seed))


def problems_of(nnet: Nnet, collapsed: Nnet, request: ComputationRequest, seed: int) -> list[str]:
    """The differences between a network and the collapsed one."""
    expected, found = (outputs(each, request, seed) for each in (nnet, collapsed))
    problems = [*differences(found, expected).values()]
    for what, value in (("context", _context), ("modulus", lambda each: each.modulus)):
        before, after = value(remove_orphans(nnet)), value(collapsed)
        if before != after:
            problems.append(f"{what} {after}, expected {before}")
    return problems


def _context(nnet: Nnet) -> tuple[int, int] | None:
    """The context of a network, if it has one."""
    try:
        return compute_context(nnet)
    except ContextError:
        return None


def judged(seed: int) -> Judged:
    """The verdict on a seed: with all pairs collapsed, with some, and after the other passes."""
    nnet, request = case_of_seed(seed)
    rng = Random(seed)
    names = "dropout", "batchnorm", "affine", "scale"
    some = CollapseOptions(**{name: rng.random() < 0.5 for name in names})
    problems, kinds = [], kinds_of(nnet)
    passes = split_affine_maps, affine_to_tdnn, for_inference
    changed = [collapse_model(nnet), collapse_model(nnet, some), *(each(nnet) for each in passes)]
    for each in changed:
        problems += problems_of(nnet, remove_orphans(each), request, seed)
    return Judged("; ".join(problems), kinds)


def kinds_of(nnet: Nnet) -> set[str]:
    """What a network has, and how many components of the collapsed one are combined ones."""
    collapsed = collapse_model(nnet)
    split, delayed = split_affine_maps(nnet), affine_to_tdnn(nnet)
    texts = " ".join(str(getattr(node, "descriptor", "")) for node in nnet.nodes)
    kinds = {f"{name} in a descriptor" for name in re.findall(r"[A-Z]\w+(?=\()", texts)}
    new_nodes = {*split.node_names} - {*nnet.node_names}
    kinds |= {"input split"} if any(name.endswith(".recurrent") for name in new_nodes) else set()
    kinds |= {"columns split"} if any(".rp.recurrent" in name for name in new_nodes) else set()
    kinds |= {"affine to TDNN"} if delayed.components != nnet.components else set()
    used = [node.component for node in nnet.nodes if isinstance(node, ComponentNode)]
    kinds |= {"shared component"} if len(used) > len(set(used)) else set()
    kinds |= {"i-vector"} if len(nnet.input_nodes) > 1 else set()
    new = set(collapsed.component_names) - set(nnet.component_names)
    before_number = {re.sub(r"\.\d+$", "", name) for name in new} - new
    kinds |= {"name was taken"} if before_number & {*nnet.component_names} else set()
    kinds |= {nnet.component(name).type for name in used}
    return kinds | {f"{min(len(new), 4)}{'+' * (len(new) >= 4)} combined components"}


if __name__ == "__main__":
    sys.exit(judge_seeds(judged, command_line(__doc__).parse_args()))
