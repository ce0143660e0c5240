"""What all tests share."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "nnet3",
    # How long examples take, and to draw them, says more about the machine than about the code.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,  # so that a failure says how to have it again
)
settings.load_profile("nnet3")
