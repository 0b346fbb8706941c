"""Moved; re-exported until the last import follows."""

from hai.client.taskfile.fields import paths as paths
