"""A second host on this machine: a network namespace behind a slow and lossy wire."""
