"""The four states of a cindex."""

import enum


class ComputableInfo(enum.IntEnum):
    """The state of a cindex in the examination."""

    UNKNOWN = 0
    """It did not come up, or it is not clear yet whether it can be computed."""
    COMPUTABLE = 1
    """It is given, or can be computed from what is."""
    NOT_COMPUTABLE = 2
    """It cannot be computed from the given rows."""
    WILL_NOT_COMPUTE = 3
    """Nothing that can be computed would make use of it, so nobody asked whether it can be."""
