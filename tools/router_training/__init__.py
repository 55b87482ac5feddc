"""Training router heads on a local pair: labels by the large model, networks in the published shapes."""
