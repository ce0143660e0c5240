"""Checks that a computation can be run with a network, and the parts that further checks need."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation.checks.allocation import check_allocation as check_allocation
    from nnet3_computation.checks.allocation import check_freed as check_freed
    from nnet3_computation.checks.allocation import check_memory_plan as check_memory_plan
    from nnet3_computation.checks.operands import COMPUTING as COMPUTING
    from nnet3_computation.checks.operands import SUMS as SUMS
    from nnet3_computation.checks.operands import check_components as check_components
    from nnet3_computation.checks.operands import check_rows as check_rows
    from nnet3_computation.checks.operands import same_place as same_place
    from nnet3_computation.checks.running import check_compression as check_compression
    from nnet3_computation.checks.running import check_fitting as check_fitting
    from nnet3_computation.checks.running import check_memos as check_memos
    from nnet3_computation.checks.running import check_network as check_network
    from nnet3_computation.checks.running import check_runnable as check_runnable
    from nnet3_computation.checks.running import check_world as check_world
    from nnet3_computation.checks.running import run_checks as run_checks
    from nnet3_computation.checks.subject import FaultError as FaultError
    from nnet3_computation.checks.subject import Subject as Subject
else:
    __getattr__, __dir__ = on_first_use(__name__)
