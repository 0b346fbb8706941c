"""Helpers of all services for requests and responses: limits, field checks, filters, paging, times."""
