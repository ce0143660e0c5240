"""Examples of 'chain' models, as the tools read and write them."""

from __future__ import annotations

from nnet3_training.chain import example_bytes, read_chain_example

from nnet3_tools.egs.forms import ExampleForm

CHAIN = ExampleForm(
    name="nnet3+chain training examples",
    decode=read_chain_example,
    encode=lambda example, binary: example_bytes(example, binary=binary),
)
"""The examples of nnet3-chain-get-egs."""
