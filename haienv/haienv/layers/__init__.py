"""Layers: immutable directories of installed packages that environments share and extend."""
