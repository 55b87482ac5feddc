"""The shell of TokenRouter: Triton, threads, sockets and tensors around the pure core."""
