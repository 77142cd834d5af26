"""The version, in one place; pyproject.toml repeats it for the installer."""

__version__ = "0.1.0"
