"""The decisions, one a module; none of them imports another."""
