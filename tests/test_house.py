"""Statements about the repository: its layers, words, licences and versions."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import refresh_assets
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from set_repository import chapters

import course_utils
from course_utils import checkpoints
from course_utils.vit import VisionTransformer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "course_utils"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))["project"]


def ignored_folders() -> set[str]:
    """The names of the folders that are made, not written."""
    lines = read(".gitignore").splitlines()
    assert ".venv/" in lines
    return {".git", "egg-info", *(line.rstrip("/") for line in lines if line)}


def own_files() -> list[str]:
    """Every file that belongs to the repository and is its own work."""
    made = ignored_folders()
    foreign = tuple(f"{folder}/" for folder in refresh_assets.FOLDERS)
    found = []
    for folder, names, files in os.walk(ROOT):
        names[:] = [
            name for name in names if name not in made and not name.endswith("egg-info")
        ]
        for file in files:
            name = Path(folder, file).relative_to(ROOT).as_posix()
            if not name.startswith(foreign):
                found.append(name)
    return sorted(found)


FILES = own_files()


# ------------------------------------------------------------------ the layers

# From the ground up: a module may import those before it.
MODEL = ("patches", "record", "embedding", "positions", "attention", "encoder", "vit")


def imports(path: Path) -> Iterator[str]:
    """The full names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules() -> dict[str, Path]:
    """Every module of the package, by its name inside it."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "__init__.py" or path.parent != PACKAGE
    }


def imported_modules(path: Path) -> set[str]:
    """The modules of the package that one of them imports."""
    inside = (
        name.removeprefix("course_utils.")
        for name in imports(path)
        if name.startswith("course_utils.")
    )
    return {name for name in inside if name in modules()}


def test_the_model_imports_downwards_only() -> None:
    assert set(MODEL) <= set(modules())
    for place, name in enumerate(MODEL):
        above = imported_modules(PACKAGE / f"{name}.py") - set(MODEL[:place])
        assert not above, f"{name} imports {above}"


def test_the_model_needs_torch_and_nothing_else() -> None:
    for name in MODEL:
        outside = {
            whole.partition(".")[0] for whole in imports(PACKAGE / f"{name}.py")
        } - set(sys.stdlib_module_names)
        assert outside <= {"torch", "course_utils"}, name


def test_no_module_imports_itself_by_a_detour() -> None:
    behind = {name: imported_modules(path) for name, path in modules().items()}
    while True:
        ground = [name for name, needed in behind.items() if not needed & set(behind)]
        if not ground:
            break
        for name in ground:
            del behind[name]
    assert behind == {}, "these import one another"


def test_the_package_imports_only_what_it_declares() -> None:
    declared = {
        canonicalize_name(Requirement(x).name) for x in project()["dependencies"]
    }
    names = {"PIL": "pillow"}
    for module, path in modules().items():
        for whole in imports(path):
            top = whole.partition(".")[0]
            if top not in sys.stdlib_module_names and top != "course_utils":
                assert canonicalize_name(names.get(top, top)) in declared, module


# ------------------------------------------------------------------ the words

# Each name is written so that this file does not contain it.
NOT_ANYWHERE = {
    "a folder of somebody's machine": r"(?<![\w./-])/(?:work|root|home|Users)/\w",
    "a host of packages": (
        r"pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)|download[.]pytorch[.]org"
        r"|anaconda[.]org|jsdelivr[.]net|unpkg[.]com|cdnjs[.]"
    ),
    "a note to self": r"\bTO[D]O\b|\bFIXM[E]\b|\bXX[X]\b",
    "a stub": r"NotImplemente[d]",
}
# Tests may do these on purpose.
NOT_IN_THE_PRODUCT = {
    "NumPy's global generator": r"np[.]random[.](?:seed|rand|randn|randint|choice)\b",
    "Python's global generator": r"(?<![.\w])random[.](?:seed|random|shuffle|choice)\(",
    "pickle": r"\btorch[.](?:load|save)\(|import pickle|allow_pickle=True",
}
TEXT = {
    ".cff", ".css", ".html", ".ipynb", ".js", ".json", ".md", ".mjs", ".py", ".svg",
    ".toml", ".txt", ".wat", ".yml", "",
}  # fmt: skip


def findings(patterns: dict[str, str], names: list[str]) -> list[str]:
    found = []
    for name in names:
        if Path(name).suffix in TEXT:
            text = read(name)
            for what, pattern in patterns.items():
                found += [f"{name}: {what}: {m[0]}" for m in re.finditer(pattern, text)]
    return found


def test_every_text_of_the_repository_is_read() -> None:
    assert {"Makefile", ".ci/run", ".github/workflows/ci.yml", "book/index.md"} <= {
        name for name in FILES if Path(name).suffix in TEXT
    }
    binary = {Path(name).suffix for name in FILES} - TEXT
    assert binary <= {".png", ".npz", ".safetensors", ".wasm", ".woff2", ".typed"}


def test_nothing_in_it_belongs_to_one_machine_or_is_unfinished() -> None:
    assert findings(NOT_ANYWHERE, FILES) == []


def test_the_product_pickles_nothing_and_leaves_global_randomness_alone() -> None:
    folders = ("course_utils/", "book/", "tools/", "benchmarks/")
    product = [name for name in FILES if name.startswith(folders)]
    assert findings(NOT_IN_THE_PRODUCT, product) == []


@pytest.mark.parametrize(
    "bad",
    [
        "see /ro" + "ot/x",
        "from py" + "pi.org",
        "# TO" + "DO: later",
        "raise NotImplemen" + "tedError",
    ],
)
def test_the_search_for_words_finds_them(bad: str) -> None:
    assert any(re.search(pattern, bad) for pattern in NOT_ANYWHERE.values())


# ------------------------------------------------------------------ the licences


def test_code_and_text_have_their_licences() -> None:
    assert read("LICENSE").startswith("MIT License")
    assert "Creative Commons Attribution 4.0 International" in read("LICENSE-TEXT")
    assert yaml.safe_load(read("CITATION.cff"))["license"] == ["MIT", "CC-BY-4.0"]


@pytest.mark.parametrize("folder", refresh_assets.FOLDERS)
def test_every_foreign_file_lies_beside_its_licence(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    licences = {
        path.name.split("LICENSE")[0] for path in files if "LICENSE" in path.name
    }
    assert licences
    for path in files:
        # One licence for the folder, or one a family, named as its files begin.
        families = [name.rstrip(".") for name in licences]
        known = {"axe-core": "axe"}
        assert any(path.name.startswith(known.get(x, x)) for x in families), path.name
    assert folder in read("README.md") or f"{folder}/LICENSE" in read("README.md")


def test_every_embedded_file_is_credited_with_its_checksum() -> None:
    sources = read("course_utils/data/CREDITS.md")
    rows = dict(re.findall(r"\| (\S+) \| [\d,]+ \| `([0-9a-f]{64})` \|", sources))
    data = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (PACKAGE / "data").iterdir()
        if path.is_file() and path.name not in ("CREDITS.md", "__init__.py")
    }
    assert rows == data
    for picture in (name for name in data if name.endswith(".png")):
        terms = rf"^\| {picture} \| .* \| (?:public domain|\[CC0\]\(.+\)) \|$"
        assert len(re.findall(terms, sources, flags=re.M)) == 1, picture


# ------------------------------------------------------------------ the commands


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", read("Makefile"), flags=re.M))


def make_commands(text: str) -> set[str]:
    """The targets that a text tells its reader to make, in code."""
    spans = re.findall(r"`(make [^`]*)`", text)
    lines = re.findall(r"^ *(?:- run: |run: )?(make .*)$", text, flags=re.M)
    words = (word for command in spans + lines for word in command.split()[1:2])
    return {word for word in words if re.fullmatch(r"[a-z-]+", word)}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_alone_lists_every_command_with_what_it_does() -> None:
    make = ["make", "--no-print-directory"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True)
    listed = dict(re.findall(r"^  make ([a-z-]+) +(\S.*)$", done.stdout, flags=re.M))
    assert set(listed) == make_targets()
    phony = re.search(r"^\.PHONY: (.*)$", read("Makefile"), flags=re.M)
    assert phony is not None
    assert set(listed) == set(phony[1].split())
    assert {"book", "test", "serve", "notebooks", "lint", "clean", "help"} <= set(
        listed
    )


@pytest.mark.parametrize(
    "name",
    ["README.md", "CONTRIBUTING.md", ".github/workflows/ci.yml", ".ci/run"],
)
def test_a_command_that_a_text_names_exists(name: str) -> None:
    commands = make_commands(read(name))
    assert commands
    assert commands <= make_targets()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_a_file_that_a_text_names_is_there(name: str) -> None:
    text = read(name)
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    # The picture is taken from the built book.
    spans = re.findall(r"`(?:python |\.venv/bin/python )?([\w.]+/[\w./-]+)`", text)
    named = {path for path in links + spans if not path.startswith((".venv", "_build"))}
    assert named
    missing = {path for path in named if not (ROOT / path).exists()}
    assert missing - {"book/NN-name.ipynb"} == set()


def test_the_code_in_the_readme_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def random_weights(name: str) -> VisionTransformer:  # for the hub is out of reach
        return VisionTransformer(checkpoints.PRETRAINED[name].config).eval()

    monkeypatch.setattr(checkpoints, "load_pretrained", random_weights)
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", read("README.md"), flags=re.S):
        for statement in ast.parse(example).body:
            # Run as a reader would, in one namespace.
            exec(compile(ast.Module([statement], []), "README.md", "exec"), names)  # noqa: S102
    assert names["logits"].shape == (2, 10)
    assert [tuple(w.shape) for w in names["weights"]] == [(2, 4, 17, 17)] * 2
    assert names["photo"].shape == (1, 3, 224, 224)
    said = capsys.readouterr().out
    assert "torch.Size([1, 12, 12, 197, 197])" in said
    assert re.search(r"total +86,567,656 +17,56\d,\d{3},\d{3}", said)


def test_the_bare_machine_script_is_valid_and_calls_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert read(".ci/run").splitlines()[-1] == "make test"
    for needed in ("chromium", "make", "python3-venv", "npm"):
        assert f"missing+=({needed})" in read(".ci/run")


def test_every_chapter_is_in_the_table_of_contents() -> None:
    toc = yaml.safe_load(read("_toc.yml"))
    listed = re.findall(r"'file': '([^']+)'", str(toc))
    written = [str(path.relative_to(ROOT).with_suffix("")) for path in chapters(ROOT)]
    assert written
    assert set(written) <= set(listed)
    assert len(set(listed)) == len(listed)


# ------------------------------------------------------------------ the workflow


def workflow() -> dict[str, Any]:
    loaded = yaml.safe_load(read(".github/workflows/ci.yml"))
    # YAML reads the bare word `on` as a truth value.
    loaded["on"] = loaded.pop(True)
    return loaded


def test_the_workflow_tests_every_supported_python() -> None:
    test = workflow()["jobs"]["test"]
    versions = test["strategy"]["matrix"]["python"]
    assert versions == ["3.10", "3.11", "3.12", "3.13"]
    assert project()["requires-python"] == f">={versions[0]}"
    assert test["steps"][-1]["run"] == "make test PYTHON=python"


def test_the_workflow_is_one_that_github_accepts() -> None:
    flow = workflow()
    assert set(flow) <= {"name", "on", "permissions", "concurrency", "env", "jobs"}
    for job in flow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        assert job["timeout-minutes"] <= 60
        assert set(job.get("needs", [])) <= set(flow["jobs"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
    for expression in re.findall(r"\$\{\{(.*?)\}\}", read(".github/workflows/ci.yml")):
        assert re.match(r" (?:github|matrix|vars|steps)\.", expression)


def test_only_what_passed_is_published_and_only_from_main() -> None:
    flow = workflow()
    deploy = flow["jobs"]["deploy"]
    assert set(deploy["needs"]) == {"test", "book"}
    assert "github.ref == 'refs/heads/main'" in deploy["if"]
    assert "github.event_name != 'pull_request'" in deploy["if"]
    upload = flow["jobs"]["book"]["steps"][-1]
    assert upload["with"]["path"] == "_build/html"
    # The right to publish is the last job's alone.
    assert flow["permissions"] == {"contents": "read"}
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}
    assert all("permissions" not in flow["jobs"][name] for name in ("test", "book"))


# ------------------------------------------------------------------ the versions


def pins(name: str) -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for line in read(name).splitlines():
        if line and not line.startswith(("#", "-")):
            pin = Requirement(line)
            found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


def pinned_version(pin: Requirement) -> Version:
    (specifier,) = pin.specifier
    assert specifier.operator == "==", pin
    return Version(specifier.version)


def ranges() -> Iterator[tuple[str, Requirement]]:
    """The file that must pin it, and the range, for each declared requirement."""
    declared = project()
    extras = declared["optional-dependencies"]
    for text in declared["dependencies"] + extras["book"]:
        yield "requirements.txt", Requirement(text)
    for text in extras["test"]:
        yield "tests/requirements.txt", Requirement(text)


def test_the_version_is_the_same_everywhere() -> None:
    assert course_utils.__version__ == project()["version"]
    assert yaml.safe_load(read("CITATION.cff"))["version"] == project()["version"]


def test_every_range_has_a_pin_within_it() -> None:
    book, tests = pins("requirements.txt"), pins("tests/requirements.txt")
    for file, wanted in ranges():
        name = canonicalize_name(wanted.name)
        # What the book pins already, the tests do not pin again.
        found = book.get(name, []) + (tests.get(name, []) if "tests" in file else [])
        assert found, f"{wanted} has no pin in {file}"
        for pin in found:
            assert wanted.specifier.contains(pinned_version(pin)), (wanted, pin)


def test_the_pins_of_book_and_tests_do_not_contradict_one_another() -> None:
    book, tests = pins("requirements.txt"), pins("tests/requirements.txt")
    for name in book.keys() & tests.keys():
        versions = {pinned_version(pin) for pin in book[name]}
        assert {pinned_version(pin) for pin in tests[name]} <= versions, name


@pytest.mark.parametrize("name", ["requirements.txt", "tests/requirements.txt"])
def test_no_pin_brings_cuda_and_none_names_a_place(name: str) -> None:
    for pin in (pin for found in pins(name).values() for pin in found):
        assert not re.match(r"nvidia|cuda|triton", pin.name), pin
        assert pin.url is None
        assert pinned_version(pin).local is None
    options = [line for line in read(name).splitlines() if line.startswith("-")]
    expected = ["-e ."] if name == "requirements.txt" else ["-r ../requirements.txt"]
    assert options == expected


def test_the_peers_come_with_the_tests_not_with_the_book() -> None:
    for peer in ("timm", "transformers", "vit-pytorch", "torchvision", "onnx"):
        assert peer in pins("tests/requirements.txt")
        assert peer not in pins("requirements.txt")


def test_colab_keeps_its_own_versions() -> None:
    # What its image has; anywidget alone is added.
    colab = {
        "huggingface-hub", "matplotlib", "numpy", "pillow", "safetensors", "torch",
        "tqdm", "traitlets"}  # fmt: skip
    wanted = [Requirement(text) for text in project()["dependencies"]]
    assert {canonicalize_name(one.name) for one in wanted} <= colab | {"anywidget"}
    for one in wanted:
        assert [specifier.operator for specifier in one.specifier] == [">="], one


# ------------------------------------------------------------------ the package


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip builds it from a copy of the tree."""
    root = tmp_path_factory.mktemp("source")
    for name in FILES:
        if name.startswith("course_utils/") or "/" not in name:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(root / "dist"), str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = (root / "dist").glob("*.whl")
    return built


def test_what_is_installed_is_the_whole_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        data = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(data).decode()
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == {name for name in FILES if name.startswith("course_utils/")}
    licences = {
        name.partition("/licenses/")[2] for name in names if "/licenses/" in name
    }
    assert licences == {"LICENSE", "LICENSE-TEXT", "course_utils/data/CREDITS.md"}
    assert "License-Expression: MIT AND CC-BY-SA-3.0 AND CC0-1.0" in metadata


def test_what_is_installed_finds_its_data_far_from_the_repository(
    wheel: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import course_utils\n"
        "assert course_utils.__file__.startswith(sys.argv[1]), course_utils.__file__\n"
        "from course_utils.data import PHOTOS, load_digits, load_photo\n"
        "train, test = load_digits()\n"
        "print(len(train.labels), len(test.labels), len([*map(load_photo, PHOTOS)]))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, str(tmp_path / "site")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["6000", "1500", "4"], done.stderr
