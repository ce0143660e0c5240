"""From the computation graph to steps: epochs, phases, and the rows that are computed together."""
