"""Traces: the time of each command of a run, and the largest values that it wrote.

trace.py   the values: Trace and its parts; a trace as tables, and as a file for trace viewers
tracer.py  Tracer: gathers the runs of computers that have it
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing.trace import CommandProfile as CommandProfile
    from nnet3_runtime_cuda.tracing.trace import CommandRun as CommandRun
    from nnet3_runtime_cuda.tracing.trace import Fault as Fault
    from nnet3_runtime_cuda.tracing.trace import ProgramProfile as ProgramProfile
    from nnet3_runtime_cuda.tracing.trace import Trace as Trace
    from nnet3_runtime_cuda.tracing.trace import format_trace as format_trace
    from nnet3_runtime_cuda.tracing.trace import trace_events as trace_events
    from nnet3_runtime_cuda.tracing.tracer import Tracer as Tracer
    from nnet3_runtime_cuda.tracing.tracer import Watch as Watch
else:
    __getattr__, __dir__ = on_first_use(__name__)
