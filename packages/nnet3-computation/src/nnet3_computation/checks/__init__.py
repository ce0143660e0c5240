"""Checks that a computation can be run with a network, and the parts that further checks need."""

from nnet3_computation.checks.allocation import check_allocation, check_freed
from nnet3_computation.checks.components import check_components, same_place
from nnet3_computation.checks.compression_types import check_compression_types
from nnet3_computation.checks.inputs_and_outputs import check_world
from nnet3_computation.checks.kinds import COMPUTING, SUMS
from nnet3_computation.checks.memory_plan import check_memory_plan
from nnet3_computation.checks.memos import check_memos
from nnet3_computation.checks.network import check_network
from nnet3_computation.checks.rows import check_rows
from nnet3_computation.checks.running import check_fitting, check_runnable, run_checks
from nnet3_computation.checks.subject import FaultError, Subject

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
    "run_checks",
    "same_place",
]
