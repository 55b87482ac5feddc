"""Words that every part of the core shares: requests, sequences, states, effects, errors."""
