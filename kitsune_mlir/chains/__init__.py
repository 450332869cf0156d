"""What warpgroups do to a tile of a chain, as plain data, before it is scheduled; and what does not chain, and why."""
