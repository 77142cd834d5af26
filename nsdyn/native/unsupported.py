"""What the native backend cannot do: its callers then use XLA."""


class Unsupported(Exception):
    """Something without a translation, by name, or a machine without a compiler."""
