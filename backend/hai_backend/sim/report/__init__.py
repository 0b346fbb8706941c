"""Reports the results of replays: figures, comparison table, HTML report."""
