"""Computations for people to look at: memory as a curve, and a summary for notebooks.

curves.py     bytes of matrices over the course of programs, as SVG
summary.py    a computation in a notebook: inputs, outputs, commands, memory, listing

These modules are imported only when a drawing is made.
"""

from nnet3_compiler.drawing.curves import memory_svg, with_unit
from nnet3_compiler.drawing.summary import computation_html

__all__ = ["computation_html", "memory_svg", "with_unit"]
