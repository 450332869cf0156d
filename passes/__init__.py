"""Passes, one a file, in the order of the pipeline."""
