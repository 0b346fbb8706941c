"""Texts for people that all faces share."""
