"""A trained operator as one file: ONNX, StableHLO, a NumPy program, or the interactive explorer."""
