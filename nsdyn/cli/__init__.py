"""The command line: commands, parsing of arguments, tables and progress.

May import: everything, integrators, problems and studies too.
"""

from nsdyn.cli.commands import app

__all__ = ["app"]
