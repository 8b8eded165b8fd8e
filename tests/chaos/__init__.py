"""A fleet under faults, and a checker that reads nothing but what the fleet wrote down."""
