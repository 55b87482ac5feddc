"""What travels between subservers when control of a request moves."""
