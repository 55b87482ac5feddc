"""Routing algorithms, each written from one request's point of view."""
