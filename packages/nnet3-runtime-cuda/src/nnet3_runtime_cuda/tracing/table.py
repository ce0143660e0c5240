"""A trace as tables: by node, by kind of command, and by command, the longest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from nnet3_runtime_cuda.tracing.trace import CommandProfile, Trace

MOST_LINES = 20

_WIDEST_TEXT = 72
_NO_NODE = "(none)"
_NUMBERS = ("runs", "ms", "share", "MB", "GB/s", "largest")


@attrs.define
class _Sum:
    """The sums of several commands."""

    runs: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    largest: float | None = None

    def add(self, command: CommandProfile) -> None:
        self.runs += command.runs
        self.seconds += command.seconds
        self.nbytes += command.nbytes * command.runs
        if command.largest is not None:
            self.largest = max(command.largest, self.largest or 0.0)


def format_trace(trace: Trace, *, most_lines: int = MOST_LINES) -> str:
    """A trace as tables.

    The columns are the number of runs, the milliseconds of all runs, their share of the total, the
    megabytes that the commands read and write by their operands, gigabytes a second, and the
    largest magnitude of the written values.

    Args:
        trace: The trace.
        most_lines: The most lines of each table.
    """
    total = trace.seconds
    nodes: dict[str, _Sum] = {}
    kinds: dict[str, _Sum] = {}
    commands: dict[str, _Sum] = {}
    for number, command in trace.commands:
        text = f"{_shortened(command.text)} [{number}]"
        for sums, key in (
            (nodes, command.node or _NO_NODE),
            (kinds, command.kind),
            (commands, f"c{command.position}: {text}"),
        ):
            sums.setdefault(key, _Sum()).add(command)
    lines = []
    for head, sums in (("node", nodes), ("kind", kinds), ("command [program]", commands)):
        ordered = sorted(sums.items(), key=lambda item: -item[1].seconds)
        lines += _table(head, ordered[:most_lines], total)
        if len(ordered) > most_lines:
            rest = sum(each.seconds for _, each in ordered[most_lines:])
            lines.append(f"{len(ordered) - most_lines} more: {1e3 * rest:.2f} ms")
        lines.append("")
    for number, program in enumerate(trace.programs):
        lines.append(f"[{number}] {program.name}: {1e3 * program.seconds:.2f} ms")
    if trace.num_left_out:
        lines.append(f"{trace.num_left_out:,} single runs were counted and not kept")
    lines.append(f"all values are finite: {'yes' if trace.fault is None else 'no'}")
    if trace.fault is not None:
        lines.append(f"first: {trace.fault}")
    return "\n".join(lines) + "\n"


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST_TEXT else f"{text[: _WIDEST_TEXT - 3]}..."


def _table(head: str, sums: Iterable[tuple[str, _Sum]], total: float) -> list[str]:
    rows: list[tuple[str, ...]] = [(head, *_NUMBERS)]
    rows += [(name, *_cells(each, total)) for name, each in sums]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _cells(each: _Sum, total: float) -> tuple[str, ...]:
    speed = each.nbytes / each.seconds / 1e9 if each.seconds else 0.0
    return (
        f"{each.runs:,}",
        f"{1e3 * each.seconds:,.2f}",
        f"{each.seconds / total if total else 0.0:.1%}",
        f"{each.nbytes / 1e6:,.1f}",
        f"{speed:.1f}",
        "" if each.largest is None else f"{each.largest:.3g}",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers = row
    cells = [f"{name:<{widths[0]}}"]
    cells += [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
    return "  ".join(cells).rstrip()
