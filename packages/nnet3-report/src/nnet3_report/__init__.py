"""Kaldi nnet3 networks, their computations and their training as pages and pictures."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_report.curves import Axes, curves_svg
    from nnet3_report.graphviz import format_dot
    from nnet3_report.layers import Layer, Read, frames_read, layers_of
    from nnet3_report.memory_curve import memory_svg, with_unit
    from nnet3_report.notebook import (
        computation_html,
        graph_html,
        model_html,
        network_html,
        network_picture,
        plan_html,
        request_html,
        trainer_html,
        training_run_html,
    )
    from nnet3_report.pages import pooled_frames, report_page, training_page, usual_request
    from nnet3_report.svg import Arc, Box, boxes_svg, lanes, network_svg
    from nnet3_report.tables import html_table
    from nnet3_report.tree import format_tree

__version__ = "0.2.0"

__all__ = [
    "Arc",
    "Axes",
    "Box",
    "Layer",
    "Read",
    "boxes_svg",
    "computation_html",
    "curves_svg",
    "format_dot",
    "format_tree",
    "frames_read",
    "graph_html",
    "html_table",
    "lanes",
    "layers_of",
    "memory_svg",
    "model_html",
    "network_html",
    "network_picture",
    "network_svg",
    "plan_html",
    "pooled_frames",
    "report_page",
    "request_html",
    "trainer_html",
    "training_page",
    "training_run_html",
    "usual_request",
    "with_unit",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_report.curves": (
                "Axes",
                "curves_svg",
            ),
            "nnet3_report.graphviz": ("format_dot",),
            "nnet3_report.layers": (
                "Layer",
                "Read",
                "frames_read",
                "layers_of",
            ),
            "nnet3_report.memory_curve": (
                "memory_svg",
                "with_unit",
            ),
            "nnet3_report.notebook": (
                "computation_html",
                "graph_html",
                "model_html",
                "network_html",
                "network_picture",
                "plan_html",
                "request_html",
                "trainer_html",
                "training_run_html",
            ),
            "nnet3_report.pages": (
                "pooled_frames",
                "report_page",
                "training_page",
                "usual_request",
            ),
            "nnet3_report.svg": (
                "Arc",
                "Box",
                "boxes_svg",
                "lanes",
                "network_svg",
            ),
            "nnet3_report.tables": ("html_table",),
            "nnet3_report.tree": ("format_tree",),
        },
    )
