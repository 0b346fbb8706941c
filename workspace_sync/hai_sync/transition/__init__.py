"""Brings a local tree to a new state, one path at a time, each of them whole or not at all."""
