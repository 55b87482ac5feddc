"""What `tools.fuzz` runs: damage, one target for each way in, and the loop that counts the outcomes."""
