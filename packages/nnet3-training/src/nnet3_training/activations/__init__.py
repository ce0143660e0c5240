"""The statistics of activations that components gather while they are trained.

component_stats.py    set to zero
saturation.py         units that hardly learn any more, by their statistics
"""
