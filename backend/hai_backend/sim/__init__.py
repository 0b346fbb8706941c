"""Runs the production scheduler on a virtual clock: replays of traces, and forecasts of start times."""
