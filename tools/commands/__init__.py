"""The commands of `kitsune`, one a file: `add` declares the arguments, `run` does the work.

Modules import what is heavy inside functions, so that `kitsune --help` is quick.
"""
