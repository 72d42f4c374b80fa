"""The paper's theory, built and measured: networks of its proofs, sensors, assumptions and bound."""
