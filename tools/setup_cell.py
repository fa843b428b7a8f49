"""The setup cell: the first code cell of every chapter, kept in this one place.

On Colab, which opens a single notebook and nothing beside it, the cell installs
``course_utils`` from the course's repository. On every other surface the package is
installed already and the cell does nothing. Until `make repository URL=…` has told the
course where its repository is, the Colab branch says so instead of installing.
"""

from __future__ import annotations

from typing import Any

CELL_ID = "setup"
"""The cell's id, the same in all chapters."""

TAGS = ["remove-cell"]
"""The book has no kernel to prepare, so its pages leave the cell out."""

_TEMPLATE = """\
# On Colab this installs the course's package; elsewhere it does nothing.
import sys
from importlib.util import find_spec

if "google.colab" in sys.modules and find_spec("course_utils") is None:
    {action}"""

_NO_REPOSITORY = (
    "raise RuntimeError(\"This copy has no repository yet: see README, 'Colab'.\")"
)


def setup_source(repository: str | None) -> str:
    """Return the text of the setup cell for a repository, or for none set yet."""
    if repository is None:
        return _TEMPLATE.format(action=_NO_REPOSITORY)
    return _TEMPLATE.format(action=f"%pip install --quiet git+{repository}")


def setup_cell(repository: str | None) -> dict[str, Any]:
    """Return the whole notebook cell, as nbformat 4.5 writes it."""
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": CELL_ID,
        "metadata": {"tags": list(TAGS)},
        "outputs": [],
        "source": setup_source(repository).splitlines(keepends=True),
    }
