"""The four states of a cindex."""

import enum


class ComputableInfo(enum.IntEnum):
    """The state of a cindex in the examination."""

    UNKNOWN = 0
    """The search has not met it, or does not know yet whether it can be computed."""
    COMPUTABLE = 1
    """It is given, or can be computed from the given rows."""
    NOT_COMPUTABLE = 2
    """It cannot be computed from the given rows."""
    WILL_NOT_COMPUTE = 3
    """No computable row would use it, so the search did not find out whether it can be computed."""
