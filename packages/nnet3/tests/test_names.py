"""Names of other packages that the front door hands on."""

from __future__ import annotations

import nnet3
import nnet3_descriptors
import nnet3_graph
import nnet3_runtime_cuda
import nnet3_tables


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
