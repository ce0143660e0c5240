"""Pages about a model (a drawing, its layers, the cost of a request), and about a training run.

facts.py             numbers about components; a program and the effect of each pass; its time here
frames_picture.py    which frames of each layer a request computes
steps_picture.py     which rows a request computes together, and these steps as a drawing
page.py, page.html   the page about a model, in one file, and the request that it shows
training_page.py     the page about a run: curves, changes, clipped steps, saturation
rendering.py         fills templates

Notebooks show the same drawings: `nnet3_report`.
"""

from nnet3_report.pages.page import pooled_frames, report_page, usual_request
from nnet3_report.pages.training_page import training_page

__all__ = ["pooled_frames", "report_page", "training_page", "usual_request"]
