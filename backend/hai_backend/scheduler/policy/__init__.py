"""The settings of scheduling that operators choose."""
