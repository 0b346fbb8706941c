"""Kubelets of the fake cluster: they run pods as local processes, or only change the state of pods."""
