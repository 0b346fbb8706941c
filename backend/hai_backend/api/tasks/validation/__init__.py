"""Is a submission valid: every rule at once, and defaults filled in. Pure."""
