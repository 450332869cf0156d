// RUN: not kitsune-opt --lower-gpu-to-ptx=target=cpu %s 2>&1 | filecheck %s

// CHECK: lower-gpu-to-ptx needs a GPU as its target, and 'cpu' is none
module {}
