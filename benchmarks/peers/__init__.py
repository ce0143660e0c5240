"""The benchmark networks as users of PyTorch or ONNX Runtime would write them.

`layers.py` has the building blocks, `networks.py` the four networks, with our parameters, and
`runners.py` runs them: PyTorch eager, torch.compile, and ONNX Runtime on the exported network. They
compute only what the request asks for, in the forms that are fast there: spliced frames for a
single product, and the input's part of recurrent gates before the loop.
"""
