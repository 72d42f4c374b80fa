"""Networks, encoders and the operator made of them."""
