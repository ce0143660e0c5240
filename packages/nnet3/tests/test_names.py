"""Names of other packages that the front door hands on."""

from __future__ import annotations

import sys

import nnet3
import nnet3_descriptors
import nnet3_graph
import nnet3_runtime_cuda
import nnet3_tables
import pytest
from nnet3_runtime_cuda import RunError


def test_names_of_other_packages() -> None:
    """They are the very objects of their packages."""
    for package, names in (
        (nnet3_descriptors, ("Nnet", "parse_config", "read_nnet", "write_nnet")),
        (nnet3_graph, ("compute_context",)),
        (nnet3_runtime_cuda, ("NnetComputer",)),
        (nnet3_tables, ("read_table", "write_table")),
    ):
        for name in names:
            assert getattr(nnet3, name) is getattr(package, name)


def test_onnx_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nnet3-runtime-onnx, `to_onnx` says what is missing."""
    monkeypatch.setitem(sys.modules, "nnet3_runtime_onnx", None)
    nnet = nnet3.parse_config("input-node name=input dim=2\noutput-node name=output input=input")
    request = nnet3.ComputationRequest(
        inputs=[nnet3.IoSpecification.from_range("input", 0, 3)],
        outputs=[nnet3.IoSpecification.from_range("output", 0, 3)],
    )

    with pytest.raises(RunError, match="models of ONNX need nnet3-runtime-onnx"):
        nnet3.to_onnx(nnet, nnet3.compile(nnet, request))
