"""Predicts when a waiting task starts."""
