"""WebhookService: webhooks that receive the news of tasks."""
