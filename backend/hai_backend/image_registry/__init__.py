"""A client of container registries (OCI distribution API): lists tags, and resolves a tag to its digest."""
