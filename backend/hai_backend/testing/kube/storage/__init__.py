"""The object store and every way to change it: create, update, patch, delete."""
