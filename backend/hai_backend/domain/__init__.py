"""Frozen values and enums of the platform; imports nothing of ours."""
