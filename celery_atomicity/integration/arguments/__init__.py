"""A lock's or limit's key from the arguments of a call."""
