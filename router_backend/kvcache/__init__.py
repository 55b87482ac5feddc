"""Paged KV accounting: which block belongs to whom, and what is cached."""
