"""Many utterances: equal chunks of several utterances run as one minibatch.

runs.py           several runs of the network at a time
larger_chunks.py  larger chunks with the same outputs, and chunks in a row that are joined
same_reads.py     comparison of the rows that a computation and a larger one read
forming.py        runs that share a minibatch
queue.py          utterances that wait, and the threads that compute them
memory_shares.py  shares of the memory that the option `memory` allows
"""

from nnet3.batches.memory_shares import MemoryShares
from nnet3.batches.queue import QueuedUtterance

__all__ = ["MemoryShares", "QueuedUtterance"]
