"""Layers: made, packed, verified, removed."""
