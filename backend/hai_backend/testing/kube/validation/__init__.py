"""Sets defaults and validates objects, as the real API server does."""
