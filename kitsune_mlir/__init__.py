"""Kitsune-MLIR: exported PyTorch models as spatial pipelines on a GPU."""
