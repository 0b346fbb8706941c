"""The object store, and the operations that change it: create, update, patch, delete."""
