"""A trace as a file that trace viewers open: Perfetto, chrome://tracing.

The format is Chrome's "Trace Event Format": complete events ("ph": "X") with times in microseconds.
"""

from __future__ import annotations

import json
from typing import Any

from nnet3_runtime_cuda.tracing.trace import Trace

_PROCESS = 1


def trace_events(trace: Trace) -> str:
    """The runs of commands as JSON for trace viewers, one event for each run.

    An event has the name of the node; its category is the kind of the command. Its arguments are
    the command, its bytes, and the largest value that the command ever wrote.
    """
    threads = sorted({run.thread for run in trace.runs})
    events = [_named("process_name", 0, "nnet3")]
    events += [_named("thread_name", number, f"thread {number}") for number in threads]
    for run in trace.runs:
        program = trace.programs[run.program]
        command = program.commands[run.command]
        events.append(
            {
                "name": command.node or command.kind,
                "cat": command.kind,
                "ph": "X",
                "ts": run.start * 1e6,
                "dur": run.seconds * 1e6,
                "pid": _PROCESS,
                "tid": run.thread,
                "args": {
                    "command": f"c{command.position}: {command.text}",
                    "program": program.name,
                    "bytes": command.nbytes,
                    "largest": command.largest,
                },
            }
        )
    if trace.fault is not None:
        events.append(_fault_event(trace))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, allow_nan=False)


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    """An event that gives a process or thread a name."""
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _fault_event(trace: Trace) -> dict[str, Any]:
    """Marks where the first value that is not finite was written; at 0 if its run was not kept."""
    fault, seen, at = trace.fault, 0, 0.0
    assert fault is not None
    for run in trace.runs:
        command = trace.programs[run.program].commands[run.command]
        if (run.program, command.position) == (fault.program, fault.position):
            seen += 1
            if seen == fault.run:
                at = run.start + run.seconds
    return {"name": str(fault), "ph": "i", "s": "g", "ts": at * 1e6, "pid": _PROCESS, "tid": 0}
