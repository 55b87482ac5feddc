"""What the front decides about text that leaves the server."""
