"""Many utterances: equal chunks of several utterances run as one minibatch.

minibatches.py    the work of an utterance as runs of the network; runs that share a minibatch
larger_chunks.py  larger chunks with the same outputs, and chunks in a row that are joined
queue.py          utterances that wait, and the threads that compute them
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3.batches.minibatches import BatchOptions as BatchOptions
    from nnet3.batches.minibatches import Work as Work
    from nnet3.batches.queue import QueuedUtterance as QueuedUtterance
    from nnet3.batches.queue import UtteranceQueue as UtteranceQueue
else:
    __getattr__, __dir__ = on_first_use(__name__)
