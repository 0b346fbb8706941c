"""Task files: reads YAML text into a TaskSpec, validates and writes it, and describes it as a JSON Schema."""
