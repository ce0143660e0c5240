"""A page about a model: its network drawn, its layers in numbers, and what a request costs.

layers.py            nodes grouped into layers, and what each layer reads
network_drawing.py   the drawing of them
component_facts.py   numbers about each component: dimensions, parameters, statistics
program_facts.py     what a request is compiled to, pass by pass
curve_drawing.py     memory over the course of a program
page.py, page.html   all of it as one page that needs nothing else
"""

from nnet3_tools.report.page import report_page

__all__ = ["report_page"]
