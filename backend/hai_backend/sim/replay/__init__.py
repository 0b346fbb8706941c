"""Runs the production scheduler on a virtual clock: traces of jobs, and logs of recorded passes."""
