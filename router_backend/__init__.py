"""The core of TokenRouter: decisions without input or output.

Owns every choice that routing, scheduling, hand-off, KV accounting and streaming have to make.
Must never read a clock, open a socket, start a thread, touch a file or import torch: a function
here is decided by its arguments, and what should happen is returned as effects for the shell
(`python_backend`) to perform.
"""
