"""Values as elements of a page, which notebooks show; the `_repr_html_` of each calls one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from nnet3_computation import live_bytes, text
from nnet3_descriptors.indexes import N, T

from nnet3_report import curves, layers, svg
from nnet3_report.layers import context_of

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
    from nnet3_descriptors import AcousticModel, Nnet
    from nnet3_graph import ComputationGraph
    from nnet3_training import Trainer
    from nnet3_training.recipes import Diagnostics, TrainingRun


MOST_LINES = 1000
"""The most lines of a program to show."""


# -- networks ----------------------------------------------------------------------------------


def network_picture(nnet: Nnet) -> str:
    """Returns the drawing of the layers of a network, an SVG element."""
    return svg.network_svg(layers.layers_of(nnet))


def network_html(nnet: Nnet) -> str:
    """Returns inputs, outputs, size, context and the drawing of a network."""
    lines = [
        *(f"input <b>{escape(node.name)}</b>: {node.dim} columns" for node in nnet.input_nodes),
        *(
            f"output <b>{escape(node.name)}</b>: {nnet.node_dim(node.name)} columns"
            for node in nnet.output_nodes
        ),
        f"{nnet.num_parameters:,} parameters in {len(nnet.components)} components",
    ]
    context = context_of(nnet)
    if context is not None:
        lines.append(f"context: {context[0]} frames before, {context[1]} behind")
    return (
        f"<div><p>{'; '.join(lines)}</p>"
        f"<div style='max-height: 40em; overflow: auto'>{network_picture(nnet)}</div></div>"
    )


def model_html(model: AcousticModel) -> str:
    """Returns the network of an acoustic model, and the number of its priors."""
    priors = f"{len(model.priors)} priors" if len(model.priors) else "no priors"
    return f"<p>acoustic model with {priors}</p>{network_html(model.nnet)}"


# -- requests, graphs, computations ------------------------------------------------------------


def request_html(request: ComputationRequest) -> str:
    """Returns the given and wanted rows of a request, a line for each node."""
    asked = [("given", io) for io in request.inputs] + [("wanted", io) for io in request.outputs]
    rows = [
        (what, io.name, len(io.indexes), *_ranges(io), "yes" if io.has_deriv else "")
        for what, io in asked
    ]
    also = "<p>The derivative with respect to the model is wanted, too.</p>"
    headings = ("", "node", "rows", "n", "t", "derivative")
    return html_table(headings, rows) + (also if request.need_model_derivative else "")


def _ranges(io: IoSpecification) -> list[str]:
    """The least and the largest n, and the least and the largest t."""
    ends = [(column.min(), column.max()) for column in (io.indexes[:, N], io.indexes[:, T])]
    return [f"{least} to {most}" if least != most else str(least) for least, most in ends]


def graph_html(graph: ComputationGraph) -> str:
    """Returns the number of cindexes of each node, and their times."""
    rows = [
        (name, len(rows), len(given), f"{times.min()} to {times.max()}")
        for name, rows, given in zip(
            graph.nnet.node_names, graph.index_sets, graph.given_sets, strict=True
        )
        if len(rows) and len(times := rows.indexes[:, T])
    ]
    return html_table(("node", "cindexes", "given", "t"), rows)


def computation_html(computation: NnetComputation) -> str:
    """Returns a computation without names of nodes and components.

    It shows the requests, if they are known, and the memory of matrices over the course of the
    program; behind a click, the commands by kind and the program as `str` lists it.
    """
    bytes_held = live_bytes(computation)
    kinds = Counter(type(command).__name__ for command in computation.commands).most_common()
    asked = [
        (what, io.name, io.rows, "yes" if io.has_deriv else "")
        for request in computation.requests
        for what, ios in (("given", request.inputs), ("wanted", request.outputs))
        for io in ios
    ]
    most = curves.with_unit(float(bytes_held.max(initial=0)))
    plan = computation.memory_plan
    arena = "" if plan is None else f", planned in {curves.with_unit(plan.arena_bytes)}"
    lines = text.program_lines(computation)
    shown = lines[:MOST_LINES]
    if len(lines) > len(shown):
        shown.append(f"... {len(lines) - len(shown):,} more")
    return (
        f"<div><p>{len(computation.command_table):,} commands, "
        f"{len(computation.matrices) - 1:,} matrices of at most {most} at a time{arena}</p>"
        + (html_table(("", "node", "rows", "derivative"), asked) if asked else "")
        + f"<div style='max-width: 640px'>{curves.memory_svg({'matrices': bytes_held})}</div>"
        + _folded("kinds of commands", html_table(("", "count"), kinds))
        + _folded("the program", "<pre>" + escape("\n".join(shown)) + "</pre>")
        + "</div>"
    )


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


# -- training ----------------------------------------------------------------------------------


def trainer_html(trainer: Trainer) -> str:
    """Returns the objectives of a trainer, and how often it limited changes."""
    rows = [
        (name, f"{total.per_frame:.6g}", f"{total.weight:,.6g}", total.minibatches)
        for name, total in trainer.objectives.items()
    ]
    limits = [line for line in trainer.summary().splitlines() if not line.startswith("objective")]
    table = html_table(("output", "objective per frame", "frames", "minibatches"), rows)
    return table + (html_table(("limits",), [[line] for line in limits]) if limits else "")


def training_run_html(run: TrainingRun) -> str:
    """Returns the objectives of a run as curves, and its iterations as a table, counted from 1.

    Both have the objectives of the network after each iteration; network 0, which is not trained,
    is left out.
    """
    from nnet3_report.pages.training_page import objectives  # with the templates of pages

    diagnostics = run.diagnostics
    names = sorted({name for each in diagnostics.values() for name in each.held_out})
    drawings = "".join(
        f"<p>Objective of {escape(name)}, per frame</p>"
        f"<div style='max-width: 640px'>{objectives(run, name)}</div>"
        for name in names
    )
    rows = [
        (
            each.number + 1,
            f"{each.learning_rate:.3g}",
            f"{len(each.averaged)} of {len(each.jobs)}" if each.diverged else len(each.jobs),
            f"{each.seconds:.1f}",
            *(_figure(diagnostics.get(each.number + 1), name) for name in names),
        )
        for each in run.iterations
    ]
    headings = ("iteration", "rate", "jobs", "seconds", *(f"held-out: {name}" for name in names))
    return f"<div><p>{escape(repr(run))}</p>{drawings}{html_table(headings, rows)}</div>"


def _figure(diagnostics: Diagnostics | None, output: str) -> str:
    figure = diagnostics.held_out.get(output) if diagnostics else None
    return f"{figure.per_frame:.4g}" if figure else ""


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table; numbers stand at the right of their column, with commas in thousands.

    Args:
        headings: Of the columns.
        rows: Values, as many in each row as there are headings; values are shown as text, never as
            markup.
    """
    head = "".join(f"<th style='text-align: left'>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"<td style='text-align: right'>{value:,}</td>"
    return f"<td style='text-align: left'>{escape(str(value))}</td>"
