"""What a model says of itself."""

from __future__ import annotations

import json

from nnet3_descriptors import ComponentNode, Nnet, OutputNode

from nnet3_runtime_onnx.ports import Ports

_MEANINGS = {
    "LogSoftmaxComponent": "log-probabilities",
    "SoftmaxComponent": "probabilities",
}
"""What an output is that a component of this type gives; others give what is not normalized."""


def description(nnet: Nnet, ports: Ports) -> dict[str, str]:
    """Returns the properties that follow from the network, and from what is given and wanted."""
    inputs = {name: {"rows": rows, "dim": dim} for name, (rows, dim) in ports.input_sizes.items()}
    outputs = {
        name: {"rows": rows, "dim": dim, "values": _meaning(nnet, name)}
        for name, (rows, dim) in ports.output_sizes.items()
    }
    return {
        "model_author": "nnet3-runtime-onnx",
        "nnet3.inputs": json.dumps(inputs),
        "nnet3.outputs": json.dumps(outputs),
    }


def _meaning(nnet: Nnet, name: str) -> str:
    """Returns what the values of an output are, as far as its last component says."""
    nodes = {node.name: node for node in nnet.nodes}
    node = nodes[name]
    if isinstance(node, OutputNode) and str(node.descriptor) in nodes:
        node = nodes[str(node.descriptor)]
    if isinstance(node, ComponentNode):
        return _MEANINGS.get(nnet.component(node.component).type, "not normalized")
    return "not normalized"
