"""One class for each service of the API, except for those about tasks."""
