"""The benchmark networks as a user of PyTorch or of ONNX Runtime would write them.

`layers.py` has the building blocks, `networks.py` the four networks, with the parameters of ours,
and `runners.py` runs them: PyTorch eager, torch.compile, and ONNX Runtime on the exported network.
They compute what the request asks for and no more, in the forms that are fast there: frames spliced
for one product each, the input's part of recurrent gates before the loop.
"""
