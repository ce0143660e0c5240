"""Checks that a computation can be run with a network, and the parts that further checks need."""

from nnet3_computation.checks.allocation import check_allocation, check_freed, check_memory_plan
from nnet3_computation.checks.operands import (
    COMPUTING,
    SUMS,
    check_components,
    check_rows,
    same_place,
)
from nnet3_computation.checks.running import (
    check_compression_types,
    check_fitting,
    check_memos,
    check_network,
    check_runnable,
    check_world,
    run_checks,
)
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
