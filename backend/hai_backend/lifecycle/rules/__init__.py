"""The rules of the state machine: how each event changes a run and its task."""
