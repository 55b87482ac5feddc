"""What operators look at: the panels of the dashboard."""
