"""Placed pipelines as persistent GPU kernels: roles by CTA, tiles in shared memory, queues in L2."""
