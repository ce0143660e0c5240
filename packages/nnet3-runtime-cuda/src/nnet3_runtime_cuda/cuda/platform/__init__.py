"""What a device can do: memory, kernels, products, replay; CUDA through CuPy."""
