"""`python -m nsdyn`."""

from nsdyn.cli.commands import app

app(prog_name="nsdyn")
