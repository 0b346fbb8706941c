"""Suspend and resume for training libraries: `torch`, `lightning`, `transformers`. Each module imports its library."""
