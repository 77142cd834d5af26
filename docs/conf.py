"""Settings of Sphinx for `make docs`. Everything builds without a network connection."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import nsdyn  # noqa: E402

project = "nsdyn"
author = "the nsdyn developers"
project_copyright = author
version = release = nsdyn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "generated_pages", "plain_docstrings"]
exclude_patterns = ["_build", "library/*", "previews/**"]  # tables that pages include
suppress_warnings = ["myst.header"]  # a page may begin a table of levels with ###

html_theme = "furo"
html_title = "nsdyn"
html_show_copyright = False
html_show_sphinx = False

# Docstrings are plain English: `name` in them is code, whatever it names.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

myst_heading_anchors = 3
