class ServerError(Exception):
    """A server did not start, is not running, or answered a command with an error."""
