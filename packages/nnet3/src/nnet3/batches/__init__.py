"""Many utterances: equal chunks of several utterances run as one minibatch.

runs.py           the work of an utterance, and several runs of the network at a time
larger_chunks.py  larger chunks with the same outputs, and chunks in a row that are joined
same_reads.py     comparison of the rows that a computation and a larger one read
forming.py        runs that share a minibatch; shares of memory
queue.py          utterances that wait, and the threads that compute them
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3.batches.forming import BatchOptions as BatchOptions
    from nnet3.batches.forming import MemoryShares as MemoryShares
    from nnet3.batches.queue import QueuedUtterance as QueuedUtterance
    from nnet3.batches.queue import UtteranceQueue as UtteranceQueue
    from nnet3.batches.runs import Work as Work
else:
    __getattr__, __dir__ = on_first_use(__name__)
