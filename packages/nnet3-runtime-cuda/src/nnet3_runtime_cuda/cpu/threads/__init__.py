"""Threads that share the calls of a program, or run programs side by side."""
