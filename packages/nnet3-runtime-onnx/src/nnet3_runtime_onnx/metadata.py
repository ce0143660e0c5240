"""The properties that a model states."""

from __future__ import annotations

import json
from collections.abc import Mapping

from nnet3_descriptors import ComponentNode, Nnet, OutputNode

_MEANINGS = {
    "LogSoftmaxComponent": "log-probabilities",
    "SoftmaxComponent": "probabilities",
}
"""The kind of output of each component type; the output of other types is not normalized."""


Sizes = Mapping[str, tuple[int | None, int]]
"""(rows, columns) by node; None for any number of rows."""


def description(nnet: Nnet, input_sizes: Sizes, output_sizes: Sizes) -> dict[str, str]:
    """Returns the properties that follow from the network and the request."""
    inputs = {name: {"rows": rows, "dim": dim} for name, (rows, dim) in input_sizes.items()}
    outputs = {
        name: {"rows": rows, "dim": dim, "values": _meaning(nnet, name)}
        for name, (rows, dim) in output_sizes.items()
    }
    return {
        "model_author": "nnet3-runtime-onnx",
        "nnet3.inputs": json.dumps(inputs),
        "nnet3.outputs": json.dumps(outputs),
    }


def _meaning(nnet: Nnet, name: str) -> str:
    """Returns the kind of the values of an output, according to its last component."""
    nodes = {node.name: node for node in nnet.nodes}
    node = nodes[name]
    if isinstance(node, OutputNode) and str(node.descriptor) in nodes:
        node = nodes[str(node.descriptor)]
    if isinstance(node, ComponentNode):
        return _MEANINGS.get(nnet.component(node.component).type, "not normalized")
    return "not normalized"
