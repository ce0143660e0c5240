"""NnetComputation and its parts."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation.computation.builder import ComputationBuilder as ComputationBuilder
    from nnet3_computation.computation.computation import CommandSequence as CommandSequence
    from nnet3_computation.computation.computation import NnetComputation as NnetComputation
    from nnet3_computation.computation.parts import NO_DEBUG_INFO as NO_DEBUG_INFO
    from nnet3_computation.computation.parts import NODE as NODE
    from nnet3_computation.computation.parts import DebugInfoOfRows as DebugInfoOfRows
    from nnet3_computation.computation.parts import MatrixDebugInfo as MatrixDebugInfo
    from nnet3_computation.computation.parts import MemoryPlan as MemoryPlan
    from nnet3_computation.computation.parts import N as N
    from nnet3_computation.computation.parts import T as T
    from nnet3_computation.computation.parts import X as X
else:
    __getattr__, __dir__ = on_first_use(__name__)
