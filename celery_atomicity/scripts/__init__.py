"""One ``.lua`` file a decision, read as package data."""
