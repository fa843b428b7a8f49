"""A widget behind a kernel: the same module in a real JupyterLab, traits both ways."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Page, expect

CELLS = (
    "from course_utils.widgets import PatchSize\nw = PatchSize()\nw",
    "w.patch_size, w.shown",
    "w.patch_size = 28",
    "w.shown = 'digit'",
    "w.patch_size = 9",
    "w",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a notebook in a JupyterLab of its own, with its token."""
    home = tmp_path_factory.mktemp("lab")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, home / "lesson.ipynb")
    own = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    folders = {f"JUPYTER_{name}": str(home / name.lower()) for name in own}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ServerApp.port=0", f"--ServerApp.root_dir={home}"]
    command += ["--LabApp.news_url=None", "--LabApp.extension_manager=readonly"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            command,
            cwd=home,
            env={**os.environ, **folders, "IPYTHONDIR": str(home / "ipython")},
            stdout=log,
            stderr=log,
        )
    try:
        yield _address(home, server)
    finally:
        server.terminate()
        server.wait(30)


def _address(home: Path, server: subprocess.Popen[bytes]) -> str:
    for _ in range(600):
        for info in (home / "runtime_dir").glob("jpserver-*.json"):
            if text := info.read_text():
                told = json.loads(text)
                start = f"{told['url']}lab/tree/lesson.ipynb"
                return f"{start}?token={told['token']}&reset"
        if server.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not start: {(home / 'log').read_text()[-2000:]}")


def run_cell(page: Page, index: int) -> str:
    """Run a cell of the notebook, wait for it, and return the text of its output."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    prompt = cell.locator(".jp-InputArea-prompt")
    for _ in range(10):  # while JupyterLab is still starting, it may miss a key
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(1000)
        if prompt.inner_text() != "[ ]:":
            break
    expect(prompt).to_have_text(re.compile(r"\[\d+\]"), timeout=120_000)
    return "\n".join(cell.locator(".jp-OutputArea-output").all_inner_texts())


@pytest.mark.browser
@pytest.mark.slow
def test_in_jupyterlab_page_and_kernel_hear_of_each_other(
    lab: str, browser: Browser
) -> None:
    with browser.new_context(viewport={"width": 1300, "height": 1000}) as context:
        page = context.new_page()
        complaints: list[str] = []
        requests: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(lab)
        kernel = page.locator(".jp-Notebook-ExecutionIndicator")
        expect(kernel).to_have_attribute("data-status", "idle", timeout=120_000)
        run_cell(page, 0)
        view = page.locator(".vit-widget").first
        read_out = view.locator(".vit-readout")
        expect(read_out).to_contain_text("196 patches", timeout=60_000)

        # From the page to the kernel.
        view.get_by_role("button", name="Patch size P: less").click()
        expect(read_out).to_contain_text("256 patches of 588 numbers")
        assert run_cell(page, 1).strip() == "(14, 'photo')"

        # From the kernel to the page, two traits one after the other among them.
        run_cell(page, 2)
        expect(read_out).to_contain_text("64 patches of 2,352 numbers")
        run_cell(page, 3)
        expect(read_out).to_contain_text("1 patch of 784 numbers")

        # What Python refuses, the page never shows.
        assert "28x28 image cannot be cut into 9x9 patches" in run_cell(page, 4)
        expect(read_out).to_contain_text("1 patch of 784 numbers")

        # A second view of the same widget follows the first.
        run_cell(page, 5)
        second = page.locator(".vit-widget").nth(1).locator(".vit-readout")
        expect(second).to_contain_text("1 patch of 784 numbers")
        view.get_by_role("button", name="Patch size P: less").click()
        expect(second).to_contain_text("4 patches of 196 numbers")
        assert complaints == []
        home = lab.split("/lab/")[0]
        local = (home, home.replace("http", "ws"), "data:", "blob:")
        assert [url for url in requests if not url.startswith(local)] == []
