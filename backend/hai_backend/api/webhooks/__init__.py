"""WebhookService: whom the server tells what becomes of tasks."""
