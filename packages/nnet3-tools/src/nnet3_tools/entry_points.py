"""The start of command-line tools, where Ctrl-C ends them quietly even during imports.

Importing a module can be interrupted. So this module and the package itself import none; a tool's
module imports NumPy and others.
"""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 plus the number of the signal, as in shells."""

_OBJECTS_UNTIL_COLLECTION = 10_000
"""Number of new objects before Python looks for garbage. By default it is 700, and importing
modules makes hundreds of thousands of objects, none of them garbage."""

_TOOLS = {
    "chain.making_egs": (
        "chain-make-num-fst-e2e",
        "nnet3-chain-e2e-get-egs",
        "nnet3-chain-get-egs",
        "nnet3-chain-normalize-egs",
    ),
    "chain.graphs": ("chain-est-phone-lm", "chain-get-supervision", "chain-make-den-fst"),
    "chain.posteriors": ("nnet3-chain-add-post-to-egs", "nnet3-chain-compute-post"),
    "compute.chunks": ("nnet3-compute", "nnet3-compute-batch", "nnet3-compute-looped"),
    "compute.xvectors": ("nnet3-xvector-compute", "nnet3-xvector-compute-batched"),
    "cuda_checks": ("cuda-compiled", "cuda-gpu-available"),
    "egs.copying": ("nnet3-chain-copy-egs", "nnet3-copy-egs", "nnet3-egs-augment-image"),
    "egs.making": (
        "nnet3-get-egs",
        "nnet3-get-egs-dense-targets",
        "nnet3-get-egs-simple",
        "nnet3-xvector-get-egs",
    ),
    "egs.merging": (
        "nnet3-chain-merge-egs",
        "nnet3-chain-shuffle-egs",
        "nnet3-chain-subset-egs",
        "nnet3-merge-egs",
        "nnet3-shuffle-egs",
        "nnet3-subset-egs",
    ),
    "models.acoustic": ("nnet3-am-adjust-priors", "nnet3-am-init", "nnet3-am-train-transitions"),
    "models.copying": ("nnet3-am-copy", "nnet3-average", "nnet3-copy", "nnet3-init"),
    "models.describing": ("nnet3-am-info", "nnet3-info", "nnet3-report"),
    "models.exporting": ("nnet3-to-c", "nnet3-to-onnx"),
    "recipes.fine_tuning": ("nnet3-chain-fine-tune",),
    "recipes.from_scratch": ("nnet3-train-recipe",),
    "speech.features": (
        "apply-cmvn-sliding",
        "compute-fbank-feats",
        "compute-mfcc-feats",
        "compute-vad",
        "select-voiced-frames",
    ),
    "speech.ivectors": ("ivector-extract-online2",),
    "speech.speakers": ("ivector-mean", "ivector-plda-scoring"),
    "speech.transcribe": ("nnet3-transcribe",),
    "training.evaluate": (
        "nnet3-chain-compute-prob",
        "nnet3-compute-from-egs",
        "nnet3-compute-prob",
        "nnet3-show-progress",
    ),
    "training.lda": (
        "nnet-get-feature-transform",
        "nnet3-acc-lda-stats",
        "nnet3-chain-acc-lda-stats",
    ),
    "training.train": (
        "nnet3-chain-combine",
        "nnet3-chain-train",
        "nnet3-combine",
        "nnet3-train",
    ),
}
"""The tools of each module."""

MODULES = {tool: f"nnet3_tools.{module}" for module, tools in _TOOLS.items() for tool in tools}
"""The module of each tool."""


def command_of(tool: str) -> Any:
    """The command of a tool, a `KaldiCommand`; imports its module."""
    return getattr(importlib.import_module(MODULES[tool]), tool.replace("-", "_"))


def __getattr__(name: str) -> Callable[[], None]:
    """The entry point of a tool: this module's attribute with `_` for each `-` of its name."""
    tool = name.replace("_", "-")
    if tool not in MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return entry_point(tool)


def entry_point(tool: str) -> Callable[[], None]:
    """Returns a function that imports the module of a tool and runs it."""

    def end(*_: object) -> None:
        # Exits at once: an extension during its import may turn an exception into another one.
        try:
            os.write(2, f"{tool}: interrupted\n".encode())
        finally:
            os._exit(INTERRUPTED)

    def main() -> None:
        gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
        usual = signal.getsignal(signal.SIGINT)
        if usual is signal.default_int_handler:  # not if Ctrl-C is ignored, as in the background
            signal.signal(signal.SIGINT, end)
        command = command_of(tool)
        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, usual)
        try:
            command.run()
        except KeyboardInterrupt:  # before the tool handles it, or after its end
            end()
        finally:
            gc.freeze()  # these objects live until the end; collecting them would waste time
            try:
                if sys.stderr is not None:
                    sys.stderr.flush()
            except OSError:  # a full disk; Python would try again, and end with status 120
                sys.stderr = None

    return main
