"""Pages about a model (a drawing, its layers, the cost of a request), and about a training run.

component_facts.py   numbers about each component: dimensions, parameters, statistics
program_facts.py     the program of a request, and the effect of each pass
frames_picture.py    which frames of each layer a request computes
time_facts.py        the time that the commands of each node take on this machine
page.py, page.html   the page about a model, in one file
training_page.py     the page about a run: curves, changes, clipped steps, saturation
rendering.py         fills templates

Notebooks show the same drawings: `nnet3_descriptors.drawing`, `nnet3_compiler.drawing`.
"""

from nnet3_tools.report.page import report_page
from nnet3_tools.report.training_page import training_page

__all__ = ["report_page", "training_page"]
