"""Gradients of parameters, plain and natural."""
