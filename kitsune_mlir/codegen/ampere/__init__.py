"""Mechanisms that every chip from sm_80 has: products of warps, matrices loaded from shared memory, copies into it."""
