"""Kaldi nnet3 networks, their computations and their training as pages and pictures."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_report.curves import curves_svg as curves_svg
    from nnet3_report.curves import memory_svg as memory_svg
    from nnet3_report.curves import with_unit as with_unit
    from nnet3_report.html import computation_html as computation_html
    from nnet3_report.html import graph_html as graph_html
    from nnet3_report.html import html_table as html_table
    from nnet3_report.html import model_html as model_html
    from nnet3_report.html import network_html as network_html
    from nnet3_report.html import network_picture as network_picture
    from nnet3_report.html import request_html as request_html
    from nnet3_report.html import trainer_html as trainer_html
    from nnet3_report.html import training_run_html as training_run_html
    from nnet3_report.layers import Layer as Layer
    from nnet3_report.layers import Read as Read
    from nnet3_report.layers import context_of as context_of
    from nnet3_report.layers import frames_read as frames_read
    from nnet3_report.layers import layers_of as layers_of
    from nnet3_report.pages import pooled_frames as pooled_frames
    from nnet3_report.pages import report_page as report_page
    from nnet3_report.pages import training_page as training_page
    from nnet3_report.pages import usual_request as usual_request
    from nnet3_report.svg import Arc as Arc
    from nnet3_report.svg import Box as Box
    from nnet3_report.svg import boxes_svg as boxes_svg
    from nnet3_report.svg import lanes as lanes
    from nnet3_report.svg import network_svg as network_svg
    from nnet3_report.tree import format_dot as format_dot
    from nnet3_report.tree import format_tree as format_tree
else:
    __getattr__, __dir__ = on_first_use(__name__)
