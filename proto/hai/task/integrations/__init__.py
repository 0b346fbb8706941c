"""Suspend and resume for training libraries: `torch`, `lightning`, `transformers`. Each loads its library on import."""
