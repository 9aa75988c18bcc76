"""Makes this folder importable, so that fast and Spark tests run the same `programs`."""

import os

from hypothesis import settings

# Random tests try so many inputs where they do not say otherwise: few, to keep the fast part under a minute, and others
# in every run. HYPOTHESIS_PROFILE=thorough takes its time.
settings.register_profile("fast", max_examples=40, deadline=None)  # a busy machine is no defect
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
