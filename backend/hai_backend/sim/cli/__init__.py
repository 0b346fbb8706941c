"""The command line of `python -m hai_backend.sim`."""
