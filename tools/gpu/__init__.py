"""Routing on one GPU with nothing but torch, measured by `tools.bench_gpu`; imports nothing else."""
