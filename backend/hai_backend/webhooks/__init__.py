"""Sends notifications of tasks to webhooks."""
