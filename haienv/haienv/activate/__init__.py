"""Activation of environments: the variables to set, and the text that each shell evaluates."""
