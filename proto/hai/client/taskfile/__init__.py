"""Task files: YAML text to a TaskSpec and back, its rules and its JSON Schema."""
