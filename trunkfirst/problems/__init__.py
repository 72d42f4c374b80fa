"""The paper's problems and one more, solved by finite elements. No JAX."""
