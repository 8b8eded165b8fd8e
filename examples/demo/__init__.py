"""The parts of the demo in fleet.py."""
