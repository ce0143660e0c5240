"""Whole runs of training in a folder: from scratch, and fine-tuning."""
