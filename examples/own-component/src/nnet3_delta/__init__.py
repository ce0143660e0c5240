"""DeltaComponent for nnet3: y(t) = scale (x(t + offset) - x(t - offset))."""
