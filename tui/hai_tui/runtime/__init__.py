"""Schedules garbage collections, and repairs timers of Textual."""
