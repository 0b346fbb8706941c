"""Builds and manages layers: immutable directories of installed packages, which environments share and extend."""
