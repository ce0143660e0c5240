"""What all tests share."""

from hypothesis import settings

settings.register_profile("nnet3", deadline=None)  # how long an example takes is not its result
settings.load_profile("nnet3")
