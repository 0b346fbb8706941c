"""Applies changes to a local tree, each path atomically."""
