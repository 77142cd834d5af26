"""`python -m nsdyn`."""

from nsdyn.cli import app

app(prog_name="nsdyn")
