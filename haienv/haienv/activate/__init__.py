"""Activates environments: computes the variables, and generates the script that each shell evaluates."""
