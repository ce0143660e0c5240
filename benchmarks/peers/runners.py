"""Runs networks in PyTorch, eager or compiled, and in ONNX Runtime."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nnet3_descriptors import Nnet

Arrays = Mapping[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]

PEERS = {
    "PyTorch": ("torch",),
    "torch.compile": ("torch",),
    "ONNX Runtime": ("torch", "onnx", "onnxruntime"),
}
"""The peers, with the modules that each needs; PyTorch exports the network to ONNX."""


def missing(peer: str) -> list[str]:
    """The modules of a peer that are not installed."""
    return [name for name in PEERS[peer] if importlib.util.find_spec(name) is None]


def prepare(peer: str, name: str, nnet: Nnet, inputs: Arrays, derivatives: Arrays | None) -> Run:
    """Makes a network ready to run.

    Args:
        peer: One of PEERS.
        name: The benchmark.
        nnet: The network that the parameters come from.
        inputs: By input node, (n, frames, columns).
        derivatives: For plain gradient descent: by output, the derivative of the objective,
            (n, frames, columns); None for inference.

    Returns:
        A call that runs or trains once and returns the outputs.
    """
    import torch
    from networks import BENCHMARKS

    from peers.networks import NETWORKS

    module = NETWORKS[name](nnet, BENCHMARKS[name])
    tensors = [torch.from_numpy(inputs[key]) for key in ("input", "ivector") if key in inputs]
    if peer == "ONNX Runtime":
        return _exported(module.eval(), tensors)
    if derivatives is None:
        return _inference(module.eval(), tensors, is_compiled=peer == "torch.compile")
    goals = [torch.from_numpy(array) for array in derivatives.values()]
    return _training(module.train(), tensors, goals, is_compiled=peer == "torch.compile")


def _inference(module: Any, tensors: list[Any], *, is_compiled: bool) -> Run:
    import torch

    if is_compiled:
        import torch._inductor.config as settings

        settings.freezing = True
        module = torch.compile(module)

    def run() -> list[np.ndarray]:
        with torch.no_grad():
            return [output.numpy() for output in module(*tensors)]

    return run


def _training(module: Any, tensors: list[Any], goals: list[Any], *, is_compiled: bool) -> Run:
    import torch

    optimizer = torch.optim.SGD(module.parameters(), lr=1.0e-6)
    network = torch.compile(module) if is_compiled else module

    def run() -> list[np.ndarray]:
        optimizer.zero_grad(set_to_none=True)
        outputs = network(*tensors)
        torch.autograd.backward(outputs, [-goal for goal in goals])
        optimizer.step()
        return [output.detach().numpy() for output in outputs]

    return run


def _exported(module: Any, tensors: list[Any]) -> Run:
    import onnxruntime
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.onnx")
        names = ["input", "ivector"][: len(tensors)]
        torch.onnx.export(
            module,
            tuple(tensors),
            path,
            input_names=names,
            output_names=["output"],
            dynamo=False,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    return lambda: session.run(["output"], feed)
