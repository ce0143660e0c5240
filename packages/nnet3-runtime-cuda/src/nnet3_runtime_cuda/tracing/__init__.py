"""What a run takes, command by command, and what values it meets.

trace.py     the values: Trace and its parts
tracer.py    Tracer: what computers that are traced tell of their runs
watch.py     how the calls of a command are timed, and what it wrote is looked at
subjects.py  what the commands of a computation are about: node, bytes, text
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

__all__ = [
    "CommandProfile",
    "CommandRun",
    "Fault",
    "ProgramProfile",
    "Trace",
    "Tracer",
    "format_trace",
    "trace_events",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
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
