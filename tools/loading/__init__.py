"""Load tests: four clients, one table."""
