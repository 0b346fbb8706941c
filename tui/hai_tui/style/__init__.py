"""Themes, and screens as SVG."""
