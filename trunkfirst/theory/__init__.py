"""The paper's theory, measured: sensors, assumptions, rates, the bound, and what to improve."""
