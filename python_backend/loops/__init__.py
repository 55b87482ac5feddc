"""The loop threads of a process and the bounded inboxes between them."""
