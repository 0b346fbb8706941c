"""What all services need to read requests and to write answers: limits, paging, filters, violations."""
