"""From the computation graph to steps: epochs, phases, and the rows that are computed together."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_compiler.steps.building import Steps as Steps
    from nnet3_compiler.steps.network import Epochs as Epochs
    from nnet3_compiler.steps.network import Graphs as Graphs
    from nnet3_compiler.steps.network import Network as Network
    from nnet3_compiler.steps.network import Phases as Phases
    from nnet3_compiler.steps.network import compute_epochs as compute_epochs
    from nnet3_compiler.steps.network import compute_phases as compute_phases
else:
    __getattr__, __dir__ = on_first_use(__name__)
