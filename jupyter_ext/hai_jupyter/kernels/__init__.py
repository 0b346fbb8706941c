"""Environments as kernels of Jupyter."""
