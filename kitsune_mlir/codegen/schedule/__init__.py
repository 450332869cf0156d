"""Kernels at the schedule level become code: a walk over what stands there, in its order."""
