"""The pages of the proxy itself: texts and HTML, the status of a waiting task, and the HTTP responses."""
