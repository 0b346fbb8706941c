"""MessageService: announcements of operators to users."""
