"""Checks a plan against the commands that it changes, by an independent method.

Nothing here uses the rules that make a plan. `form` checks that its parts name existing things:
positions of commands of the right class, areas, sizes. `panels` follows the panels in each memory.
`execution` runs the computation twice at the same time, once as it is and once as planned, on
numbers that stand for the elements (`cells`), and compares the numbers that commands read.
"""

from __future__ import annotations

from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet

from nnet3_runtime_cuda.lowering.check.by_position import Changes
from nnet3_runtime_cuda.lowering.check.execution import Execution
from nnet3_runtime_cuda.lowering.check.form import check_form
from nnet3_runtime_cuda.lowering.check.panels import check_panels
from nnet3_runtime_cuda.lowering.plan.plan import Plan


def check_plan(nnet: Nnet, computation: NnetComputation, plan: Plan) -> None:
    """Checks that a plan does not change the results of a computation.

    A plan may compute a result earlier or later than the commands say, or from other rows. The
    result must then come from the same values and reach all its readers: element by element, in all
    segments and in the first rounds of a loop. The check does not measure whether a change saves
    time.

    Args:
        nnet: The network.
        computation: A computation of it that can be run (`lower` checks that).
        plan: The changes.

    Raises:
        PlanError: The plan belongs to another computation, or changes a result; the message names
            the command.
        ComputationError: The computation is of another network.
    """
    computation.check_network(nnet)
    check_form(nnet, computation, plan)
    check_panels(computation, plan)
    changes = Changes(plan)
    if changes:
        Execution(nnet, computation, changes).run()
