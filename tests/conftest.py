"""Being here puts this folder on the import path, so that every test can use `oracle` and `seeded`."""

from pcdc_runtime.blas import load_fast_blas

# Before any test imports MLX: later it has no effect.
load_fast_blas()
