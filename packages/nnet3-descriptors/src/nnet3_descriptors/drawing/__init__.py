"""Networks for people to look at: as layers, as an SVG, as HTML, as a tree in text, for Graphviz.

layers.py     nodes grouped into layers, and the sources of each layer
svg.py        the drawing of them, and of any boxes that read one another
summary.py    the drawing with facts about the network, for notebooks
tree.py       layers and their nodes as a tree, for terminals
tables.py     a table in HTML, for the notebooks of all packages
curves.py     curves, as an SVG
graphviz.py   nodes and descriptors in the language of Graphviz

These modules are imported only when a drawing is made.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_descriptors.drawing.curves import Axes, curves_svg
    from nnet3_descriptors.drawing.graphviz import format_dot
    from nnet3_descriptors.drawing.layers import Layer, Read, frames_read, layers_of
    from nnet3_descriptors.drawing.summary import network_html
    from nnet3_descriptors.drawing.svg import Arc, Box, boxes_svg, lanes, network_svg
    from nnet3_descriptors.drawing.tables import html_table
    from nnet3_descriptors.drawing.tree import format_tree

__all__ = [
    "Arc",
    "Axes",
    "Box",
    "Layer",
    "Read",
    "boxes_svg",
    "curves_svg",
    "format_dot",
    "format_tree",
    "frames_read",
    "html_table",
    "lanes",
    "layers_of",
    "network_html",
    "network_svg",
]

if not TYPE_CHECKING:  # or any name would be one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_descriptors.drawing.curves": (
                "Axes",
                "curves_svg",
            ),
            "nnet3_descriptors.drawing.graphviz": ("format_dot",),
            "nnet3_descriptors.drawing.layers": (
                "Layer",
                "Read",
                "frames_read",
                "layers_of",
            ),
            "nnet3_descriptors.drawing.summary": ("network_html",),
            "nnet3_descriptors.drawing.svg": (
                "Arc",
                "Box",
                "boxes_svg",
                "lanes",
                "network_svg",
            ),
            "nnet3_descriptors.drawing.tables": ("html_table",),
            "nnet3_descriptors.drawing.tree": ("format_tree",),
        },
    )
