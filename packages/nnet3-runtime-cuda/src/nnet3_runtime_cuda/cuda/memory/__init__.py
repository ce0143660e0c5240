"""Memory of a device: what stands for it on the host, what a program takes, and what would fit."""
