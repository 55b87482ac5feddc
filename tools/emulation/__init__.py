"""Emulated models: real processes, sockets, Triton and streams around engines that only let time pass.

Every figure that comes from here is an emulation and says so.
"""
