"""An OpenAI-compatible HTTP server in front of the text door, and a playground page.

A client of Triton like any other, in a process of its own: it can neither slow nor block Triton's doors. It
sees nothing of this project but `python_backend.client`.
"""
