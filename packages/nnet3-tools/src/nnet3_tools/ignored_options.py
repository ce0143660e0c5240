"""Kaldi's options that decide how Kaldi computes. Tools accept them; here they change nothing."""

from __future__ import annotations

OPTIMIZATION = frozenset(
    f"--optimization.{name}"
    for name in (
        "allocate-from-other",
        "allow-left-merge",
        "allow-right-merge",
        "backprop-in-place",
        "consolidate-model-update",
        "convert-addition",
        "extend-matrices",
        "initialize-undefined",
        "max-deriv-time",
        "max-deriv-time-relative",
        "memory-compression-level",
        "min-deriv-time",
        "move-sizing-commands",
        "optimize",
        "optimize-row-ops",
        "propagate-in-place",
        "remove-assignments",
        "snip-row-ops",
        "split-row-ops",
    )
)
"""The options of the optimizer. The times of derivatives matter to tools that train, which declare
these options themselves."""

DEBUGGING = frozenset({"--computation.debug", "--debug-computation"})

COMPILER = frozenset({"use-shortcut", "cache-capacity"})
"""Names without dashes, as some tools put `--compiler.` before them."""

CACHES = frozenset({"--read-cache", "--write-cache", "--binary-write-cache"})
"""Files of compiled computations."""

CUDA = frozenset(
    {
        "--cuda-cache-memory",
        "--cuda-memory-proportion",
        "--cuda-use-tensor-cores",
        "--cuda-use-tf32-compute",
    }
)

OF_OBJECTIVES = (
    OPTIMIZATION
    | DEBUGGING
    | frozenset(f"--compiler.{name}" for name in COMPILER)
    | CACHES
    | CUDA
    | {"--numerator-graph-threads"}
)
"""The options of tools that compute objectives on examples."""

OF_UTTERANCES = (
    OPTIMIZATION
    | DEBUGGING
    | CUDA
    | {"--use-shortcut", "--cached-compiler-in", "--cached-compiler-out"}
)
"""The options of tools that run a model over features."""
