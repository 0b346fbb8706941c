"""A made-up cluster in memory for `hai tui --demo`, for pictures of the manual, and for tests."""
