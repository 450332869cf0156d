"""Kernels for Hopper: warpgroup products (wgmma) fed by tensor copies (TMA). One file a hardware mechanism."""
