"""Pages about a model (its network drawn, its layers, what a request costs), and about a run.

component_facts.py   numbers about each component: dimensions, parameters, statistics
program_facts.py     what a request is compiled to, pass by pass
time_facts.py        how long the commands of each node take on this machine
page.py, page.html   all of it as one page that needs nothing else
training_page.py     a page about a run of training: curves, changes, clipped steps, saturation
rendering.py         how pages are made of templates

The drawings are those that notebooks show: `nnet3_descriptors.drawing`, `nnet3_compiler.drawing`.
"""

from nnet3_tools.report.page import report_page
from nnet3_tools.report.training_page import training_page

__all__ = ["report_page", "training_page"]
