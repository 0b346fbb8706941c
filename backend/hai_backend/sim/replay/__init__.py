"""Runs the production scheduler on a virtual clock: replays of traces, and verification of recorded passes."""
