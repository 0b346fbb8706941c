"""Injected faults: of requests and of watch streams."""
