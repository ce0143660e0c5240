"""The benchmark networks in PyTorch on a CUDA device: eager, torch.compile, and a captured graph.

The networks are those of `networks.py` in this folder. Training is plain gradient descent, with one
kernel for all parameters; PyTorch has no natural gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from nnet3_descriptors import Nnet

RUNNERS = ("eager", "compile", "graph")

WARM_UP = 4
"""Runs before a graph is captured, in which libraries choose algorithms and allocate memory."""


def set_precision(precision: str) -> None:
    """Sets the precision of products and convolutions; bf16 by autocast."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def prepare(
    runner: str,
    name: str,
    nnet: Nnet,
    inputs: Mapping[str, np.ndarray],
    derivatives: Mapping[str, np.ndarray] | None,
    *,
    precision: str,
    device: str = "cuda",
) -> Callable[[], object]:
    """Returns a call that queues one run, or one training step.

    Args:
        runner: One of RUNNERS.
        name: The benchmark.
        nnet: The network that the parameters come from.
        inputs: By input node, (n, frames, columns).
        derivatives: For training: by output, (n, frames, columns); None for inference.
        precision: "fp32", "tf32" or "bf16".
        device: The device; with "cpu", a test run without a graph.
    """
    import torch
    from networks import BENCHMARKS

    from peers.networks import NETWORKS

    set_precision(precision)
    module = NETWORKS[name](nnet, BENCHMARKS[name]).to(device).train(derivatives is not None)
    given = [inputs[key] for key in ("input", "ivector") if key in inputs]
    tensors = [torch.from_numpy(array).to(device) for array in given]
    network = torch.compile(module) if runner == "compile" else module
    autocast = torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")

    if derivatives is None:

        def run() -> None:
            with torch.no_grad(), autocast:
                network(*tensors)

    else:
        goals = [-torch.from_numpy(array).to(device) for array in derivatives.values()]
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0e-6, fused=device == "cuda")

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            with autocast:
                outputs = network(*tensors)
            torch.autograd.backward([output.float() for output in outputs], goals)
            optimizer.step()

    return captured(run) if runner == "graph" and device == "cuda" else run


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """The run as a CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    replay: Callable[[], object] = graph.replay
    return replay
