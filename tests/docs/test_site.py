"""The documentation site: it builds without a warning, loads nothing from other hosts, and has every public name."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("site")  # built once


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built from a copy: the build writes the pages of the reference beside the sources."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    copy, folder = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", copy / "docs", ignore=shutil.ignore_patterns("_api", "_build"))
    for name in ("src", "examples", "paper", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"):
        (copy / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going", "-b", "html", "docs", str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, cwd=copy)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_sidebar(site):
    front = (site / "index.html").read_text(encoding="utf-8")
    sidebar = front[front.index('<div class="sidebar-tree">') : front.index('<div class="main">')]
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= set(re.findall(r'href="([\w-]+)\.html"', sidebar))


def test_every_public_name_has_an_entry(site):
    documented = set(
        re.findall(r'id="(evenhand\.\w+)"', "".join(page.read_text() for page in site.glob("_api/*.html")))
    )
    modules = {f"module-evenhand.{name}" for name in ("errors", "policies", "problems", "uncertainty")}
    text = "".join(page.read_text(encoding="utf-8") for page in site.glob("_api/*.html"))
    assert all(f'id="{module}"' in text for module in modules)
    names = {f"evenhand.{name}" for name in evenhand.__all__} - {"evenhand.__version__"}
    assert names - {module.removeprefix("module-") for module in modules} <= documented


def test_it_works_without_a_network(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded}"
