"""The parts of `tools.soak`: what is asked, who is killed, what counts as right, what is told of it."""
