"""Whole systems side by side: ours, and what people would use instead, on the same models and requests.

Every system answers the same questions under the same routing rule, driven by the same closed loop.
"""
