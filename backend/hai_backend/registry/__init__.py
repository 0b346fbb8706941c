"""Container registries, asked over the OCI distribution API: which tags there are, and which digest one has now."""
