"""Build the book into _build/html, and say where it is or what stopped it.

Nothing is done when nothing changed. Chapters are run once and their results kept in
a cache, which knows the chapters' code but not the package behind it: so the cache
carries a key made of everything else that the results depend on, and is dropped when
that changes. A build counts as good only once it has finished without a warning.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the results of a chapter depend on, beside its own code.
BEHIND = ("course_utils", "requirements.txt")
# What the pages depend on beside these.
BOOK = ("_config.yml", "_toc.yml", "book", "tools/build_book.py")


def key(root: Path, names: Iterable[str]) -> str:
    """Return a digest of the files, their names included, and of this Python."""
    digest = hashlib.sha256(platform.python_version().encode())
    for name in names:
        top = root / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            inside = path.relative_to(root)
            # Caches, checkpoints and editors' notes change, and no page with them.
            unread = any(part.startswith((".", "__pycache__")) for part in inside.parts)
            if path.is_file() and not unread:
                digest.update(f"\n{inside.as_posix()}\n".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def read(path: Path) -> str:
    """Return a file's text, empty if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def run_jupyter_book(root: Path) -> tuple[int, list[str]]:
    """Build, passing the output on; return the status and the warnings seen."""
    start = "from jupyter_book.cli.main import main; main(prog_name='jupyter-book')"
    command = [sys.executable, "-c", start, "build", ".", "--all"]
    command += ["-W", "--keep-going", "-n"]
    # What runs is the same every time, and no progress bars end up on the pages. One
    # thread: sums round alike on every machine, and where other programs run too, a
    # small model on many threads takes ten times as long, waiting for the last of them.
    fixed = {
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "TQDM_DISABLE": "1",
    }
    kept = {name: text for name, text in os.environ.items() if name != "MPLBACKEND"}
    process = subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=kept | fixed,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    problems = []
    for line in process.stdout:
        print(line, end="", flush=True)
        plain = re.sub(r"\x1b\[[\d;]*m", "", line).strip()
        if re.search(r"(^|: )(WARNING|ERROR|CRITICAL): ", plain):
            problems.append(plain.replace(f"{root}{os.sep}", ""))
    return process.wait(), problems


def failed_chapters(html: Path) -> list[str]:
    """Return a line for each chapter that raised, from the reports of the build."""
    lines = []
    reports = html / "reports"
    for report in sorted(reports.rglob("*.err.log")):
        chapter = report.relative_to(reports).as_posix().removesuffix(".err.log")
        text = re.sub(r"\x1b\[[\d;]*m", "", read(report)).strip()
        errors = [
            line for line in text.splitlines() if re.match(r"\w*(\.\w+)*: ", line)
        ]
        last = errors[-1] if errors else (text.splitlines() or ["no message"])[-1]
        lines.append(f"{chapter}.ipynb: {last}")
    return lines


def main(root: Path = ROOT) -> int:
    """Build what changed; return the exit status."""
    start = time.monotonic()
    build = root / "_build"
    html = build / "html"
    cache = build / ".jupyter_cache"
    built_key, cache_key = build / "book.key", cache / "course.key"
    behind, book = key(root, BEHIND), key(root, BEHIND + BOOK)
    page = (html / "index.html").as_uri()

    if read(built_key) == book and (html / "index.html").is_file():
        print(f"The book is up to date: {page}")
        return 0

    built_key.unlink(missing_ok=True)
    # Pages that the book no longer has must not stay in it.
    shutil.rmtree(html, ignore_errors=True)
    if read(cache_key) != behind:
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        cache_key.write_text(behind, encoding="utf-8")

    status, problems = run_jupyter_book(root)
    if key(root, BEHIND) != behind:
        # The package was edited while chapters ran: nobody knows which of it they saw.
        cache_key.unlink(missing_ok=True)
        status = status or 1
        problems.append("course_utils or the requirements changed while it was built.")
    if status:
        print("\nThe book was not built.", file=sys.stderr)
        # That a chapter raised is said by its own line, which has the error in it.
        others = (line for line in problems if "[mystnb.exec]" not in line)
        for line in failed_chapters(html) + list(dict.fromkeys(others)) or problems:
            print(f"  {line}", file=sys.stderr)
        return status
    built_key.write_text(book, encoding="utf-8")
    print(f"\nThe book is built ({time.monotonic() - start:.0f} s): {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
