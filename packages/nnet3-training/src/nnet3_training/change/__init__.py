"""The change of parameters after a minibatch.

update.py        l2, max-change, momentum
orthonormal.py   matrices that stay semi-orthonormal
"""
