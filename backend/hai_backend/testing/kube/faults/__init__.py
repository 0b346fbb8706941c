"""Injects faults into requests, watch streams and nodes."""
