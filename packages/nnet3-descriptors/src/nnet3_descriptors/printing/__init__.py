"""Networks as text for people and scripts.

config_lines.py    nodes as config lines, as Kaldi prints them
info.py             the text of nnet3-info
"""
