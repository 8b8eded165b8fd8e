"""What a Python is started with that is to fail at the first warning of ours."""

# kombu before 5.4 warns by itself where it is imported on Python 3.12 and later.
STRICT = ("-W", "error", "-W", "ignore:datetime.datetime.utc:DeprecationWarning")
