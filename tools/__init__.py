"""Command-line tools: kitsune-opt and kitsune."""
