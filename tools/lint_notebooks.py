"""Check that the chapters read well and stay clean, one rule a function.

`python tools/lint_notebooks.py` reports what breaks a rule in the chapters and in the
prose of the pages. `--fix` first clears outputs and execution counts, mends cell ids
and metadata, and puts the shared setup cell in its place.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from set_repository import ROOT, chapters, read_repository, write_notebook
from setup_cell import CELL_ID, TAGS, setup_cell, setup_source

MAX_LINE = 80
MAX_CELL_LINES = 25
MEDIAN_CELL_LINES = 8
CELL_METADATA = {"jupyter", "tags"}
NOTEBOOK_METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}

FILLER = ("basically", "just", "obviously", "simply")
# American spelling -> British, as stems: the ending stays. A name that exists in one
# spelling only stands in `code`, where nothing is checked.
SPELLING = {
    "analyz": "analys",
    "artifact": "artefact",
    "behavior": "behaviour",
    "center": "centre",
    "color": "colour",
    "favor": "favour",
    "flavor": "flavour",
    "generaliz": "generalis",
    "gray": "grey",
    "initializ": "initialis",
    "labeled": "labelled",
    "labeling": "labelling",
    "modeling": "modelling",
    "neighbor": "neighbour",
    "normaliz": "normalis",
    "optimiz": "optimis",
    "organiz": "organis",
    "parametriz": "parametris",
    "recogniz": "recognis",
    "regulariz": "regularis",
    "summariz": "summaris",
    "tokeniz": "tokenis",
    "visualiz": "visualis",
}
_SPELLING = re.compile(rf"\b({'|'.join(SPELLING)})\w*", re.IGNORECASE)
_FILLER = re.compile(rf"\b({'|'.join(FILLER)})\b", re.IGNORECASE)
# Pictographs, and the dingbats that phones draw as pictures; a plain tick is no emoji.
_EMOJI = re.compile(
    "[\U0001f000-\U0001faff\u2600-\u26ff\u2705\u270a-\u270d\u2728\u274c\u2753-\u2757"
    "\u2764\u2b50\ufe0f]"
)

Cell = dict[str, Any]
Notebook = dict[str, Any]


def source(cell: Cell) -> str:
    """Return a cell's text, which nbformat stores as a string or a list of lines."""
    text = cell["source"]
    return text if isinstance(text, str) else "".join(text)


def name(index: int, cell: Cell) -> str:
    """Return how a message names a cell: by its place and its first words."""
    first = source(cell).strip().splitlines()[:1] or ["empty"]
    return f"cell {index + 1} ({first[0][:40]!r})"


def cells_of(notebook: Notebook, kind: str) -> Iterator[tuple[str, Cell]]:
    """Yield the name and the cell for each cell of a kind."""
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == kind:
            yield name(index, cell), cell


# Rules of the file. Each yields a message for each thing that breaks it.


def no_outputs(notebook: Notebook) -> Iterator[str]:
    """Outputs belong to a run, not to the source."""
    for where, cell in cells_of(notebook, "code"):
        if cell.get("outputs"):
            yield f"{where}: stored outputs"
        if cell.get("execution_count") is not None:
            yield f"{where}: an execution count"


def clean_metadata(notebook: Notebook) -> Iterator[str]:
    """The kernel is `python3`, and no editor's notes are stored."""
    kernel = notebook["metadata"].get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield f"the kernel is {kernel!r}, not 'python3'"
    elif notebook["metadata"] != NOTEBOOK_METADATA:
        yield "its metadata hold more than the kernel and the language"
    for index, cell in enumerate(notebook["cells"]):
        extra = sorted(set(cell["metadata"]) - CELL_METADATA)
        if extra:
            yield f"{name(index, cell)}: metadata {', '.join(extra)}"


def cell_ids(notebook: Notebook) -> Iterator[str]:
    """Format 4.5, where each cell has an id of its own that no edit changes."""
    version = (notebook.get("nbformat"), notebook.get("nbformat_minor"))
    if version != (4, 5):
        yield f"the format is {version[0]}.{version[1]}, not 4.5"
    ids = [cell.get("id", "") for cell in notebook["cells"]]
    for index, cell in enumerate(notebook["cells"]):
        if not re.fullmatch(r"[\w-]{1,64}", ids[index], flags=re.ASCII):
            yield f"{name(index, cell)}: no valid id, but {ids[index]!r}"
        elif ids.index(ids[index]) < index:
            yield f"{name(index, cell)}: the id {ids[index]!r} again"


def no_empty_cells(notebook: Notebook) -> Iterator[str]:
    """An empty cell is a slip of the editor."""
    for index, cell in enumerate(notebook["cells"]):
        if not source(cell).strip():
            yield f"cell {index + 1}: empty"


# Rules of the code.


def starts_with_setup(notebook: Notebook) -> Iterator[str]:
    """The first code cell is the shared setup cell, word for word."""
    expected = setup_source(read_repository())
    first = next((cell for _, cell in cells_of(notebook, "code")), None)
    if first is None or source(first) != expected:
        yield "the first code cell is not the setup cell of tools/setup_cell.py"
    elif first.get("id") != CELL_ID or first["metadata"].get("tags") != TAGS:
        yield f"the setup cell needs the id {CELL_ID!r} and the tags {TAGS}"


def short_lines(notebook: Notebook) -> Iterator[str]:
    """Code is read in a narrow column."""
    for where, cell in cells_of(notebook, "code"):
        for line in source(cell).splitlines():
            if len(line) > MAX_LINE:
                yield f"{where}: a line of {len(line)} characters, over {MAX_LINE}"


def short_cells(notebook: Notebook) -> Iterator[str]:
    """One idea a cell: none is long, and half of them are short."""
    lengths = []
    for where, cell in cells_of(notebook, "code"):
        lengths.append(len(source(cell).splitlines()))
        if lengths[-1] > MAX_CELL_LINES:
            yield f"{where}: {lengths[-1]} lines, over {MAX_CELL_LINES}"
    median = statistics.median(lengths) if lengths else 0
    if median >= MEDIAN_CELL_LINES:
        yield f"half the code cells have {median:g} lines or more: split some"


def figures_have_alt(notebook: Notebook) -> Iterator[str]:
    """Each `figure(…)` says in words what it shows."""
    for where, cell in cells_of(notebook, "code"):
        # Magics and shell lines are IPython's own, so they become comments here.
        text = re.sub(r"^(\s*)[%!].*$", r"\1pass", source(cell), flags=re.MULTILINE)
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            yield f"{where}: {error.msg}"
            continue
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            alt = [word.value for word in call.keywords if word.arg == "alt"]
            blank = alt and isinstance(alt[0], ast.Constant) and not alt[0].value
            if call.func.id == "figure" and (not alt or blank):
                yield f"{where}: figure(…) without alt="


# Rules of the Markdown: what every surface renders, and how the prose reads.


LITERAL_DIRECTIVES = re.compile(r"\{(code|code-block|code-cell|math|literalinclude)\}")


def without_code(text: str) -> str:
    """Return Markdown without its code: fenced blocks, then spans.

    What a directive such as a note holds is prose and stays.
    """
    kept: list[str] = []
    literal = ""  # the fence of the code block we are in
    notes: list[str] = []  # the fences of the directives around this line
    for line in text.splitlines():
        fence = re.match(r" *(`{3,}|~{3,})(.*)", line)
        if fence is None:
            if not literal:
                kept.append(line)
            continue
        mark, information = fence[1], fence[2].strip()
        if literal:
            if mark.startswith(literal) and not information:
                literal = ""
        elif notes and mark.startswith(notes[-1]) and not information:
            notes.pop()
        elif information.startswith("{") and not LITERAL_DIRECTIVES.match(information):
            notes.append(mark)
        else:
            literal = mark
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", "\n".join(kept), flags=re.S)


MYST = {
    "a directive": r"^ *(?::{3,}|`{3,}|~{3,})\{",
    "a colon fence": r"^ *:{3,}",
    "a role": r"\{[a-z][\w:+.-]*\}`[^`]",
    "a target": r"^\([\w-]+\)= *$",
    "a substitution": r"\{\{.+?\}\}",
    "a comment or block break": r"^(?:% |\+\+\+)",
    "a footnote": r"\[\^[\w-]+\]",
    "an alert": r"^> *\[!\w+\]",
    "a labelled equation": r"\$\$ *\([\w:-]+\) *$",
}


def plain_markdown(notebook: Notebook) -> Iterator[str]:
    """Outside the book, MyST's own syntax shows as raw text."""
    for where, cell in cells_of(notebook, "markdown"):
        text = source(cell)
        # Directives and roles are made of backquotes; the rest may stand in code.
        for what, pattern in MYST.items():
            if what == "a role":
                # A code span that follows a brace may be the role's own text.
                spans = r"(?<![`}])(`+)(?!`)[^\n]+?(?<!`)\1(?!`)"
                inside = re.sub(spans, "", text)
            else:
                inside = text if "`" in pattern else without_code(text)
            inside = re.sub(r"\$\$[^$]*\$\$(?! *\()|\$[^$\n]*\$", "$$", inside)
            if re.search(pattern, inside, flags=re.MULTILINE):
                yield f"{where}: {what}, which only MyST renders"


def images_have_alt(notebook: Notebook) -> Iterator[str]:
    """A picture in Markdown has words, and travels inside the notebook."""
    for where, cell in cells_of(notebook, "markdown"):
        text = without_code(source(cell))
        for alt, target in re.findall(r"!\[(.*?)\]\((.*?)\)", text, flags=re.S):
            if not alt.strip():
                yield f"{where}: an image without alt text"
            if not target.startswith(("attachment:", "data:")):
                yield f"{where}: the image {target} is missing where Colab opens it"
        for tag in re.findall(r"<img\b[^>]*>", text, flags=re.S):
            if not re.search(r"\balt\s*=\s*(['\"])\s*\S.*?\1", tag, flags=re.S):
                yield f"{where}: an <img> without alt text"


def prose(text: str) -> str:
    """Return the words a reader reads: no code, maths, addresses, tags or options."""
    text = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = without_code(text)
    text = re.sub(r"\$\$.*?\$\$", " ", text, flags=re.S)
    text = re.sub(r"\$[^$\n]+\$", " ", text)
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<[^>]*>|https?://\S+", " ", text)
    text = re.sub(r"^ *:[\w-]+:.*$", "", text, flags=re.M)
    return re.sub(r"\{[\w:+.-]+\}", "", text)


def plain_words(text: str) -> Iterator[str]:
    """No filler, no exclamation marks, no emoji, British spelling."""
    text = prose(text)
    for word in _FILLER.findall(text):
        yield f"the filler word {word!r}"
    for match in re.finditer(r"\S*!", text):
        yield f"an exclamation mark: {match[0]!r}"
    for match in _EMOJI.finditer(text):
        yield f"an emoji: {match[0]!r}"
    # Titles and quoted words keep the spelling of their authors.
    unquoted = re.sub(r"\"[^\"]*\"|“[^”]*”|\*[^*\n]+\*|_[^_\n]+_", "", text)
    for match in _SPELLING.finditer(unquoted):
        if match[0][1:].islower() or match[0].isupper():
            british = SPELLING[match[1].lower()]
            yield f"American spelling: {match[0]!r}, here {british!r}"


def words_of_chapters(notebook: Notebook) -> Iterator[str]:
    """The prose of a chapter is plain."""
    for where, cell in cells_of(notebook, "markdown"):
        for message in plain_words(source(cell)):
            yield f"{where}: {message}"


RULES: tuple[Callable[[Notebook], Iterator[str]], ...] = (
    no_outputs,
    clean_metadata,
    cell_ids,
    no_empty_cells,
    starts_with_setup,
    short_lines,
    short_cells,
    figures_have_alt,
    plain_markdown,
    images_have_alt,
    words_of_chapters,
)


def check(notebook: Notebook) -> list[str]:
    """Return what breaks a rule in one notebook, each with the rule's name."""
    return [
        f"{message} [{rule.__name__}]" for rule in RULES for message in rule(notebook)
    ]


def fix(notebook: Notebook) -> Notebook:
    """Return the notebook with what a machine can mend mended."""
    notebook = json.loads(json.dumps(notebook))
    notebook.update(nbformat=4, nbformat_minor=5)
    notebook["metadata"] = json.loads(json.dumps(NOTEBOOK_METADATA))
    cells = [cell for cell in notebook["cells"] if source(cell).strip()]
    shared = setup_cell(read_repository())
    # The setup cell is known by its id or its first line, however old its text is.
    opening = source(shared).splitlines()[0]
    known = (
        index
        for index, cell in enumerate(cells)
        if cell["cell_type"] == "code"
        and (cell.get("id") == CELL_ID or source(cell).startswith(opening))
    )
    place = next(known, None)
    if place is not None:
        cells[place] = shared
    else:
        kinds = [cell["cell_type"] for cell in cells]
        first = kinds.index("code") if "code" in kinds else len(cells)
        cells.insert(first, shared)
    seen: Counter[str] = Counter()
    for cell in cells:
        text = source(cell)
        cell["source"] = text.splitlines(keepends=True)
        kept = {k: v for k, v in cell["metadata"].items() if k in CELL_METADATA}
        cell["metadata"] = kept
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
        identity = cell.get("id", "")
        if not re.fullmatch(r"[\w-]{1,64}", identity, re.ASCII) or seen[identity]:
            # From the text alone, so that a second run gives the same id.
            identity = hashlib.sha256(text.encode()).hexdigest()[:8]
            while seen[identity]:
                identity += "x"
        seen[identity] += 1
        cell["id"] = identity
    notebook["cells"] = cells
    return notebook


def pages(root: Path) -> list[Path]:
    """Return the Markdown pages whose prose is checked."""
    found = sorted((root / "book").rglob("*.md"))
    # Foreign assets keep the words of their authors.
    own = [path for path in found if "_static" not in path.parts]
    return [*own, root / "README.md", root / "CONTRIBUTING.md"]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="default: the whole book")
    parser.add_argument("--fix", action="store_true", help="mend what can be mended")
    options = parser.parse_args(arguments)
    if not options.files and not chapters(root):
        print(f"There is not one chapter in {root / 'book'}.", file=sys.stderr)
        return 1
    files = options.files or chapters(root) + pages(root)
    found = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            notebook = json.loads(text)
            if options.fix:
                notebook = fix(notebook)
                if write_notebook(notebook) != text:
                    path.write_text(write_notebook(notebook), encoding="utf-8")
                    print(f"mended: {path}")
            messages = check(notebook)
        else:
            messages = list(plain_words(text))
        for message in messages:
            print(f"{path}: {message}", file=sys.stderr)
        found += len(messages)
    print(f"{len(files)} chapters and pages read, {found} found to mend.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
