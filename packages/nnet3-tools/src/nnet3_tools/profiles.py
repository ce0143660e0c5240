"""Names of `flags`."""

from nnet3_tools.flags import PROFILE as PROFILE
from nnet3_tools.flags import check_overwrites_none as check_overwrites_none
from nnet3_tools.flags import profiled as profiled
