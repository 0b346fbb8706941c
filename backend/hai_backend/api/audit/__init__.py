"""The audit: what a row says of a call, refused sign-ins, and AuditService, which lists the rows."""
