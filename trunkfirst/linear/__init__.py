"""Linear algebra on the host: orthonormal bases, low-rank factors, error limits."""
