"""The store in memory: for tests, simulations and `memory:`."""
