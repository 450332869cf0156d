"""What `kitsune bench` does: a compiled model beside every way torch has to run it, on one GPU.

cases        the models, by name
shapes       the models that are named by their sizes
networks     what the names stand for
zoo          small models of many forms, by name, at three sizes
zoo_models   their modules; those with attention in zoo_attention, those of images in zoo_images
everyday     whole models as people write them; their modules in everyday_images, _sequences and _tables
fields_images  modules of image processing and graphics
random_nets  random networks: draw_nets draws them by a seed, smaller_nets leaves steps out
sides        the ways to run one: torch's, and ours
device       the GPU: moving, capturing, timing; tests put another in its place
check        fresh inputs, the reference in float64, poisoned results
floor        the time that no way of running can beat
compilation  our compiler's run, timed
kernels      each kernel's time beside the plan's
measure      one case from its model to a record
record       what is kept of a case, plain data (JSON)
children     the cases, in processes that may die
dram         bytes that the hardware counted, through ncu
table        records as text, for a terminal and for a document
"""
