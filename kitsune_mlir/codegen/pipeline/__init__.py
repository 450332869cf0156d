"""What the code of GPU kernels is made of, whatever they do: words, elements, memory, counters, waits with a budget."""
