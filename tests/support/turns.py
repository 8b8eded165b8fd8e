"""Whether runs that exclude each other took turns."""


def assert_one_at_a_time(entries):
    """Of each key, one run ends before the next one starts."""
    running = {}
    for entry in entries:
        key = entry["key"]
        if entry["event"] == "start":
            assert key not in running, f"{entry} while {running[key]} runs"
            running[key] = entry
        else:
            assert running.pop(key)["id"] == entry["id"]
