"""ImageService: images that tasks run in, and registries."""
