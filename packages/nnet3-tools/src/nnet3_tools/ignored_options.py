"""Names of `flags`."""

from nnet3_tools.flags import OF_OBJECTIVES as OF_OBJECTIVES
from nnet3_tools.flags import OF_UTTERANCES as OF_UTTERANCES
from nnet3_tools.flags import unused as unused
