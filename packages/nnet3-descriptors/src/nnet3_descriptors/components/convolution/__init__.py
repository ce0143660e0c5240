"""Convolutions and pooling: over time, or over the axes that the columns of a row stand for."""
