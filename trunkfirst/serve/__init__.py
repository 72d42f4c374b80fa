"""The HTTP service of a trained operator."""
