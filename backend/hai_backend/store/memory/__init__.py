"""The store in memory, for tests, simulations and the address `memory:`."""
