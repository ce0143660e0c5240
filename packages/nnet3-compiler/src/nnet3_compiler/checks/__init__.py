"""Checks that a computation can be run with a network, and the parts that further checks need."""

from nnet3_compiler.checks.allocation import check_allocation, check_freed
from nnet3_compiler.checks.components import check_components, same_place
from nnet3_compiler.checks.compression_types import check_compression_types
from nnet3_compiler.checks.inputs_and_outputs import check_world
from nnet3_compiler.checks.kinds import COMPUTING, SUMS
from nnet3_compiler.checks.memory_plan import check_memory_plan
from nnet3_compiler.checks.memos import check_memos
from nnet3_compiler.checks.network import check_network, node_dims
from nnet3_compiler.checks.rows import check_rows
from nnet3_compiler.checks.running import check_fitting, check_runnable, run_checks
from nnet3_compiler.checks.subject import FaultError, Subject

__all__ = [
    "COMPUTING",
    "SUMS",
    "FaultError",
    "Subject",
    "check_allocation",
    "check_components",
    "check_compression_types",
    "check_fitting",
    "check_freed",
    "check_memory_plan",
    "check_memos",
    "check_network",
    "check_rows",
    "check_runnable",
    "check_world",
    "node_dims",
    "run_checks",
    "same_place",
]
