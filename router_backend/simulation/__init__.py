"""The whole system under a manual clock and an unreliable network."""
