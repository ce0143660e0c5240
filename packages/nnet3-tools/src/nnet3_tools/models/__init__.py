"""Tools that make, show, change and translate models."""
