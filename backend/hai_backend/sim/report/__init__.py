"""What is computed from a replay and shown: figures, comparison table, HTML report."""
