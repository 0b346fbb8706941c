"""The input (snapshot) and the output (plan) of a scheduling pass."""
