"""Of the load tests."""
