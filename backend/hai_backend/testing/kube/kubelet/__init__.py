"""Kubelets of the fake cluster: pods as real local processes, or as words of the test."""
