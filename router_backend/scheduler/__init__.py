"""Which sequences run next on one model, and what follows from a step."""
