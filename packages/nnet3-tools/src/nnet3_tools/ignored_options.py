"""Kaldi's options that tools accept, although they change nothing here.

Each option maps to what it is about, for the help of the tools.
"""

from __future__ import annotations

_OPTIMIZER = "the optimizer"

_OF_ALL_COMPUTATIONS = {
    "--computation.debug": "checks",
    "--debug-computation": "checks",
    "--cuda-cache-memory": "GPUs",
    "--cuda-memory-proportion": "GPUs",
    "--cuda-use-tensor-cores": "GPUs",
    "--cuda-use-tf32-compute": "GPUs",
    "--optimization.allocate-from-other": _OPTIMIZER,
    "--optimization.allow-left-merge": _OPTIMIZER,
    "--optimization.allow-right-merge": _OPTIMIZER,
    "--optimization.backprop-in-place": _OPTIMIZER,
    "--optimization.consolidate-model-update": _OPTIMIZER,
    "--optimization.convert-addition": _OPTIMIZER,
    "--optimization.extend-matrices": _OPTIMIZER,
    "--optimization.initialize-undefined": _OPTIMIZER,
    # The times of derivatives matter to tools that train, which declare these options themselves.
    "--optimization.max-deriv-time": _OPTIMIZER,
    "--optimization.max-deriv-time-relative": _OPTIMIZER,
    "--optimization.memory-compression-level": _OPTIMIZER,
    "--optimization.min-deriv-time": _OPTIMIZER,
    "--optimization.move-sizing-commands": _OPTIMIZER,
    "--optimization.optimize": _OPTIMIZER,
    "--optimization.optimize-row-ops": _OPTIMIZER,
    "--optimization.propagate-in-place": _OPTIMIZER,
    "--optimization.remove-assignments": _OPTIMIZER,
    "--optimization.snip-row-ops": _OPTIMIZER,
    "--optimization.split-row-ops": _OPTIMIZER,
}

OF_OBJECTIVES = _OF_ALL_COMPUTATIONS | {
    "--compiler.use-shortcut": "the compiler",
    "--compiler.cache-capacity": "the compiler",
    "--read-cache": "the compiler",
    "--write-cache": "the compiler",
    "--binary-write-cache": "the compiler",
    "--numerator-graph-threads": "threads",
}
"""The options of tools that compute objectives on examples."""

OF_UTTERANCES = _OF_ALL_COMPUTATIONS | {
    "--use-shortcut": "the compiler",
    "--cached-compiler-in": "the compiler",
    "--cached-compiler-out": "the compiler",
}
"""The options of tools that run a model over features."""

OF_ALL_TOOLS = {"--verbose": "messages", "--print-args": "messages"}


def unused(*names: str) -> dict[str, str]:
    """Options that Kaldi's tool takes, and does not use."""
    return dict.fromkeys(names, "not used by Kaldi's tool, either")
