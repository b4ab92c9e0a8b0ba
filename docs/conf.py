"""How the documentation is built: `make docs`; every warning is an error."""

from __future__ import annotations

from importlib.metadata import version as installed_version

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "joulewise"
author = "The joulewise authors"
copyright = "The joulewise authors"  # noqa: A001 - the name that Sphinx reads
version = release = installed_version("joulewise")

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "schemas"]
nitpicky = True

html_theme = "furo"
html_title = f"joulewise {version}"
html_show_copyright = False
html_copy_source = False


def setup(app: Sphinx) -> None:
    """Pygments knows no CSV; it reads well without colours."""
    app.add_lexer("csv", TextLexer)
