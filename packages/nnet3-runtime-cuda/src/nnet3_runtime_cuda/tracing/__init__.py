"""Traces: the time of each command of a run, and the largest values that it wrote.

trace.py     the values: Trace and its parts
tracer.py    Tracer: gathers the runs of computers that have it
watch.py     times the calls of a command, and reads the values that it wrote
subjects.py  the node, bytes and text of each command of a computation
table.py     a trace as tables
events.py    a trace as a file that trace viewers open
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing.events import trace_events
    from nnet3_runtime_cuda.tracing.table import format_trace
    from nnet3_runtime_cuda.tracing.trace import (
        CommandProfile,
        CommandRun,
        Fault,
        ProgramProfile,
        Trace,
    )
    from nnet3_runtime_cuda.tracing.tracer import Tracer
    from nnet3_runtime_cuda.tracing.watch import Watch

__all__ = [
    "CommandProfile",
    "CommandRun",
    "Fault",
    "ProgramProfile",
    "Trace",
    "Tracer",
    "Watch",
    "format_trace",
    "trace_events",
]

if not TYPE_CHECKING:  # a type checker would accept any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_cuda.tracing.watch": ("Watch",),
            "nnet3_runtime_cuda.tracing.events": ("trace_events",),
            "nnet3_runtime_cuda.tracing.table": ("format_trace",),
            "nnet3_runtime_cuda.tracing.trace": (
                "CommandProfile",
                "CommandRun",
                "Fault",
                "ProgramProfile",
                "Trace",
            ),
            "nnet3_runtime_cuda.tracing.tracer": ("Tracer",),
        },
    )
