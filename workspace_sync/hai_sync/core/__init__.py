"""Pure functions: trees as values, their differences, ignore rules, and reconciliation."""
