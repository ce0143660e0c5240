"""Many utterances: equal chunks of several utterances run as one minibatch.

runs.py           several runs of the network at a time
larger_chunks.py  which larger chunk has the same outputs, and which chunks in a row are one
same_reads.py     whether the rows of a computation read the same rows in a larger one
forming.py        which runs come into the same minibatch
queue.py          utterances that wait, and the threads that compute them
"""
