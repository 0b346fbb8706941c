"""Readers of job traces, one module per file format."""
