"""The records of a tape for a device: operations as values, and their views of memory."""
