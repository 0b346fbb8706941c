"""The page of logs."""
