"""A made-up cluster in memory, always the same: for `hai tui --demo` and for pictures of the manual."""
