"""Being here puts this folder on the import path, so that every test can use `oracle` and `seeded`."""

import os
import signal

from hypothesis import HealthCheck, settings
from pcdc_runtime.blas import load_fast_blas

# Before any test imports MLX: later it has no effect.
load_fast_blas()

# No test fills the user's cache with heads; those about them have a cache of their own.
os.environ["PCDC_HEAD_CACHE"] = "0"

# In the background of a shell interrupts are ignored, and would be by the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test asserts a time, nor does the library for it.
settings.register_profile("no time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no time")
