"""Validates submissions: checks all rules, reports all violations, and fills in defaults. Pure."""
