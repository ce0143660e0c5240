"""What all tests share.

Properties are tried with a hundred examples, or so many times a hundred as a test says; with
`--hypothesis-profile=few` with a fifth of them. A test that names a number keeps to it.
"""

import os

from hypothesis import HealthCheck, settings

os.environ["NNET3_CACHE_DIR"] = ""  # tests neither read nor leave results in anybody's home

settings.register_profile(
    "nnet3",
    # How long examples take, and to draw them, says more about the machine than about the code.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,  # so that a failure says how to have it again
)
settings.register_profile("few", parent=settings.get_profile("nnet3"), max_examples=20)
settings.load_profile("nnet3")
