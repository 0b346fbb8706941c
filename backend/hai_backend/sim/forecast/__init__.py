"""Predicts when a queued task starts.

A forecast belongs to the simulator, because each sampled future is a run of the virtual cluster (replay/). Of the
simulator, the server imports only this sub-package (api/scheduling/forecasts.py).
"""
