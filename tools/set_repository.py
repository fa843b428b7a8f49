"""Tell the course where its repository is: `make repository URL=https://…`.

The address stands in one place, pyproject.toml. This script puts it there and rewrites
everything that follows from it: the site's repository and launch buttons, the setup
cell of every chapter, the links in README.md and the entry in CITATION.cff. Running it
again changes nothing; `--check` only reports what does not agree. Until an address is
set, none of these places carries a link, rather than a dead one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from setup_cell import CELL_ID, setup_cell

ROOT = Path(__file__).resolve().parent.parent
COLAB = "https://colab.research.google.com"
BINDER = "https://mybinder.org"


def normalise(url: str) -> str:
    """Return the address as it is written everywhere, or raise ValueError."""
    match = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)(\.git)?/?", url)
    if match is None:
        raise ValueError(
            f"{url!r} is not an address like https://github.com/OWNER/NAME. It must "
            "begin with https:// (the setup cell installs from it), and be on GitHub, "
            "the only host from which Colab opens notebooks."
        )
    return f"https://github.com/{match[1]}/{match[2]}"


def read_repository(root: Path = ROOT) -> str | None:
    """Return the address that pyproject.toml holds, None while there is none."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^Repository = "(.*)"$', text, flags=re.M)
    return match[1] if match else None


def chapters(root: Path) -> list[Path]:
    """Return every notebook of the book."""
    return sorted(
        path
        for path in (root / "book").rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts and "_build" not in path.parts
    )


def write_notebook(notebook: dict[str, Any]) -> str:
    """Return the notebook's text as JupyterLab saves it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def in_pyproject(text: str, url: str) -> str:
    """Return pyproject.toml with the address in its table of links."""
    entry = f'[project.urls]\nRepository = "{url}"\n'
    text = re.sub(r"\[project\.urls\]\nRepository = .*\n\n?", "", text)
    following = "[project.optional-dependencies]"
    if following not in text:
        raise ValueError(
            f"it has no line {following}, before which the address stands."
        )
    return text.replace(following, f"{entry}\n{following}", 1)


def in_config(text: str, url: str) -> str:
    """Return _config.yml with the repository, its buttons and the launch buttons."""
    # Each key is dropped with what it holds, then written anew before `html:`.
    for key in ("repository", "launch_buttons"):
        text = re.sub(rf"^{key}:.*\n(?:[ \t]+.*\n)*\n?", "", text, flags=re.M)
    text = re.sub(r"^  use_(?:repository|issues)_button:.*\n", "", text, flags=re.M)
    block = f"""\
repository:
  url: {url}
  branch: main
  path_to_book: ""
launch_buttons:
  notebook_interface: jupyterlab
  binderhub_url: {BINDER}
  colab_url: {COLAB}

html:
  use_repository_button: true
  use_issues_button: true
"""
    text, count = re.subn(r"^html:\n", block, text, count=1, flags=re.M)
    if not count:
        raise ValueError("it has no line `html:`, before which the repository stands.")
    return text


def in_readme(text: str, url: str) -> str:
    """Return README.md with the links that need an address, between its two marks."""
    path = url.removeprefix("https://github.com/")
    links = f"""\
<!-- repository -->
[Open the first chapter in Colab]({COLAB}/github/{path}/blob/main/book/01-patches.ipynb)
· [Start the course on Binder]({BINDER}/v2/gh/{path}/main?urlpath=lab/tree/book)
· [Source]({url})
<!-- /repository -->"""
    pattern = r"<!-- repository -->.*<!-- /repository -->"
    text, count = re.subn(pattern, links, text, flags=re.S)
    if count != 1:
        raise ValueError(
            "it needs the marks <!-- repository --> and <!-- /repository --> once, "
            f"between which the links stand, and has them {count} times."
        )
    return text


def in_citation(text: str, url: str) -> str:
    """Return CITATION.cff with the repository as its last entry."""
    text = re.sub(r"^repository-code:.*\n", "", text, flags=re.M)
    return text + f'repository-code: "{url}"\n'


def in_notebook(text: str, url: str) -> str:
    """Return the notebook with the setup cell for the address."""
    notebook = json.loads(text)
    cells = notebook["cells"]
    for index, cell in enumerate(cells):
        if cell.get("id") == CELL_ID:
            cells[index] = setup_cell(url)
            return write_notebook(notebook)
    raise ValueError(
        f"it has no cell with the id {CELL_ID!r}: "
        "run `python tools/lint_notebooks.py --fix`, which adds the setup cell."
    )


def rewritten(root: Path, url: str) -> dict[Path, str]:
    """Return the new text of each file that does not carry the address yet."""
    rewrite = {
        root / "pyproject.toml": in_pyproject,
        root / "_config.yml": in_config,
        root / "README.md": in_readme,
        root / "CITATION.cff": in_citation,
        **dict.fromkeys(chapters(root), in_notebook),
    }
    changed: dict[Path, str] = {}
    for path, function in rewrite.items():
        old = path.read_text(encoding="utf-8")
        try:
            new = function(old, url)
        except ValueError as error:
            raise ValueError(f"{path.relative_to(root)}: {error}") from error
        if new != old:
            changed[path] = new
    return changed


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?", help="https://github.com/OWNER/NAME")
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 if files disagree"
    )
    options = parser.parse_args(arguments)
    url = options.url or read_repository(root)
    if url is None:
        print("No repository is set: make repository URL=https://github.com/OWNER/NAME")
        return 0 if options.check else 2
    try:
        url = normalise(url)
        changed = rewritten(root, url)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for path, text in changed.items():
        print(f"{'differs' if options.check else 'set'}: {path.relative_to(root)}")
        if not options.check:
            path.write_text(text, encoding="utf-8")
    if not changed:
        print(f"Every file names {url}.")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
