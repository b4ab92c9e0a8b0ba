"""What every page shares: templates, files of the package, and a policy that forbids requests."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from joulewise.report.savings_figure import clocks_label
from joulewise.report.wording import (
    change,
    count,
    duration,
    energy,
    percent,
    plain,
    setting,
)

if TYPE_CHECKING:
    from jinja2 import Environment


def page_environment() -> Environment:
    """Templates of this package: escaped, strict about names, with the words of reports."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - slow to load

    environment = Environment(
        loader=PackageLoader("joulewise.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        change=change,
        clocks_label=clocks_label,
        count=count,
        duration=duration,
        energy=energy,
        percent=percent,
        plain=plain,
        setting=setting,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "sort_keys": True}
    return environment


def page_scripts() -> tuple[str, str]:
    """The figure library and the script that draws the figures with it."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - heavy, needed here alone

    return get_plotlyjs(), page_resource("page.js")


def page_resource(name: str) -> str:
    """A text file that lies beside this module."""
    return files("joulewise.report").joinpath(name).read_text(encoding="utf-8")


def content_policy(scripts: tuple[str, ...]) -> str:
    """Only these inline scripts, inline styles, and pictures that the page makes itself."""
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
