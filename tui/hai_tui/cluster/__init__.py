"""The state of nodes, and its layout as a map, a tree and text. Only the model has state; all else is pure."""
