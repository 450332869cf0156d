"""The kitsune dialect."""
