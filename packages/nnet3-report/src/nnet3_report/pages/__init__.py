"""Pages about a model (a drawing, its layers, the cost of a request), and about a training run.

component_facts.py   numbers about each component: dimensions, parameters, statistics
program_facts.py     the program of a request, and the effect of each pass
frames_picture.py    which frames of each layer a request computes
step_facts.py        which rows a request computes together, and what these steps read
steps_picture.py     the steps as a drawing
usual_requests.py    the request of a page if nobody names one
time_facts.py        the time that the commands of each node take on this machine
page.py, page.html   the page about a model, in one file
training_page.py     the page about a run: curves, changes, clipped steps, saturation
rendering.py         fills templates

Notebooks show the same drawings: `nnet3_report`.
"""

from nnet3_report.pages.page import report_page
from nnet3_report.pages.training_page import training_page
from nnet3_report.pages.usual_requests import pooled_frames, usual_request

__all__ = ["pooled_frames", "report_page", "training_page", "usual_request"]
