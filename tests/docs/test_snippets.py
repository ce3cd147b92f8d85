"""Every snippet of the README and of the documentation is run, and what a page shows is what comes out.

A page's snippets run in order, in one namespace and one folder, in which there are only the examples:

    ```python                    is executed
    ```sh                        each line is a command: `evenhand ...`, `python examples/...` or, in a process of its
                                 own, `python -m ...`; `git clone URL NAME` copies this repository, and `cd` enters it
    ```diff                      is applied to the files of the folder
    ```text, ```json             straight after a snippet: its output; a line `...` stands for any lines
    <!-- file: NAME -->          the next block is written to NAME first
    <!-- exits: 2 -->            the next commands end with this code, and the text shown is what they complain
    <!-- not run: REASON -->     the next block is not run; the targets of its `make` commands must exist

In outputs, times do not count, and a number may differ by one in the last digit shown. Gaps below a millionth are
rounding, which no two machines share, so all of them are alike.
"""

import contextlib
import io
import json
import math
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

import evenhand
from evenhand.cli import application, run
from evenhand.planning import METHODS, REGISTRY

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
PAGES = [page for page in PAGES if "_build" not in page.parts]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MARKERS = ("file", "exits", "not run")
RUN, SHOWN = ("python", "sh", "diff"), ("text", "json")
OTHER = ("toml", "bibtex")


@dataclass
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    body: str
    markers: dict[str, str]
    follows: bool
    """Whether only blank lines stand between it and the block before it."""

    output: "Block | None" = field(default=None)
    """What it is said to print."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read_blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, each with its markers and its output."""
    blocks: list[Block] = []
    markers: dict[str, str] = {}
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    follows = False
    for number, line in lines:
        if fence := re.fullmatch(r"(`{3,})(\w*)", line):
            body = _until(fence[1], lines)
            block = Block(page, number, fence[2], body, markers, follows)
            if follows and not markers and block.language in SHOWN and blocks[-1].language in RUN:
                blocks[-1].output = block
            blocks.append(block)
            markers, follows = {}, True
        elif re.fullmatch(r"<!-- (table|figures): .+ -->|<!-- end -->", line):
            follows = False  # filled in by `python -m paper --docs`
        elif marker := re.fullmatch(r"<!-- ([\w ]+): (.+) -->", line):
            assert marker[1] in MARKERS, f"{name_of(page)}:{number}: unknown marker {marker[1]!r}"
            markers[marker[1]] = marker[2]
        elif line.strip():
            assert not markers, f"{name_of(page)}:{number}: the marker above belongs to no block"
            follows = False
    return blocks


def _until(fence: str, lines: Iterator[tuple[int, str]]) -> str:
    body = []
    for _, line in lines:
        if line == fence:
            return "\n".join(body) + "\n"
        body.append(line)
    raise AssertionError("a fenced block is never closed")


def commands_of(block: Block) -> list[list[str]]:
    whole = block.body.replace("\\\n", " ")
    return [words for line in whole.splitlines() if (words := shlex.split(line, comments=True))]


def execute(block: Block, namespace: dict[str, object]) -> str:
    """Run a block; its output, or its complaints where it is expected to fail."""
    out, complaints = io.StringIO(), io.StringIO()
    expected = int(block.markers.get("exits", 0))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints):
        if block.language == "python":
            exec(compile(block.body, block.place, "exec"), namespace)
        elif block.language == "diff":
            subprocess.run(["git", "apply", "-C1"], input=block.body, text=True, check=True)
        else:
            for words in commands_of(block):
                code = command(words, block)
                assert code == expected, (
                    f"{block.place}: {shlex.join(words)} ended with {code}: {complaints.getvalue()}"
                )
    as_json = block.output is not None and block.output.language == "json"  # complaints have that form, too
    return (complaints if expected and not as_json else out).getvalue()


def command(words: list[str], block: Block) -> int:
    if words[0] == "evenhand":
        return run(words[1:])
    if words[0] == "python" and (ROOT / words[1]) in EXAMPLES:
        run_example(ROOT / words[1], words[2:])
        return 0
    if words[:2] == ["python", "-m"]:
        folder = Path.cwd()  # if it is a copy of the repository, its own library is used
        environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}:{folder}:{os.environ.get('PYTHONPATH', '')}"}
        done = subprocess.run([sys.executable, *words[1:]], env=environment, capture_output=True, text=True)
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stdout + done.stderr)
        return done.returncode
    if words[:2] == ["git", "clone"]:
        for name in ("src", "tests", "docs", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            Path(words[3]).mkdir(exist_ok=True)
            copy(ROOT / name, Path(words[3]) / name)
        return 0
    if words[0] == "cd":
        os.chdir(words[1])
        return 0
    raise AssertionError(f"{block.place}: cannot run `{shlex.join(words)}`; mark the block <!-- not run: why -->")


def run_example(example: Path, arguments: list[str]) -> None:
    before, sys.argv = sys.argv, [str(example), *arguments]
    try:
        runpy.run_path(str(example), run_name="__main__")
    finally:
        sys.argv = before


# What is shown, and what came


def differences(shown: str, came: str) -> list[str]:
    """What differs, line by line; nothing if the output is what is shown."""
    wanted, got = _lines(shown), _lines(came)
    while wanted:
        if wanted[0] == "...":
            rest = wanted[1:]
            if not rest:
                return []
            start = next((i for i, line in enumerate(got) if alike(rest[0], line)), None)
            if start is None:
                return [f"shown: {rest[0]}", "came:  nothing like it"]
            wanted, got = rest, got[start:]
        if not got or not alike(wanted[0], got[0]):
            return [f"shown: {wanted[0]}", f"came:  {got[0] if got else 'no more'}"]
        wanted, got = wanted[1:], got[1:]
    return [f"not shown: {got[0]}"] if got else []


def _lines(text: str) -> list[str]:
    text = re.sub(r"\b\d[\d.]* (ms|s)\b", "TIME", text)
    text = text.replace(" + TIME compile", "")  # only where it was not done before
    text = re.sub(r"─+", "─", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def alike(shown: str, came: str) -> bool:
    """Whether two lines say the same, numbers within the last digit shown."""
    number = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    if re.sub(number, "#", shown) != re.sub(number, "#", came):
        return False
    return all(map(_near, re.findall(number, shown), re.findall(number, came)))


def _near(shown: str, came: str) -> bool:
    if shown == came:
        return True
    if max(abs(float(shown)), abs(float(came))) < 1e-6:
        return True
    if "." not in shown or "e" in shown + came:
        return False
    return abs(float(shown) - float(came)) < 1.01 * 10.0 ** -len(shown.partition(".")[2])


def json_alike(shown: object, came: object, key: str = "") -> bool:
    if key == "seconds":
        return type(shown) is type(came)
    if isinstance(shown, dict) and isinstance(came, dict):
        return shown.keys() == came.keys() and all(json_alike(shown[k], came[k], k) for k in shown)
    if isinstance(shown, list) and isinstance(came, list):
        return len(shown) == len(came) and all(map(json_alike, shown, came))
    if isinstance(shown, float) and isinstance(came, float):
        return math.isclose(shown, came, rel_tol=1e-6, abs_tol=1e-6)
    return shown == came


def check_output(block: Block, came: str) -> None:
    output = block.output
    if output is None:
        return
    if output.language == "json":
        assert json_alike(json.loads(output.body), json.loads(came)), f"{output.place}: came\n{came}"
        return
    found = differences(output.body, came)
    assert not found, f"{output.place} shows another output:\n" + "\n".join([*found, "", "all that came:", came])


# The tests


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_snippets(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    namespace: dict[str, object] = {"__name__": "snippet"}
    for block in read_blocks(page):
        assert block.language in RUN + SHOWN + OTHER, f"{block.place}: what is a block of {block.language!r}?"
        if "file" in block.markers:
            file = Path(block.markers["file"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.body, encoding="utf-8")
        elif block.language in RUN and "not run" not in block.markers:
            check_output(block, execute(block, namespace))
    for name, module in list(sys.modules.items()):  # those of the page are no other page's
        if str(getattr(module, "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_example(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run_example(example, [])
    assert out.getvalue().strip()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([\w-]+)`", page.read_text(encoding="utf-8")))
    commands = [words for block in read_blocks(page) if block.language == "sh" for words in commands_of(block)]
    named |= {words[1] for words in commands if words[0] == "make"}
    assert named <= targets


def _without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _links(page: Path) -> list[str]:
    text = _without_blocks(page)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _links(page):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{name_of(page)} links to {link}"
        assert file.is_relative_to(ROOT), f"{name_of(page)} links out of the repository: {link}"
        if anchor:
            assert anchor in _anchors(file), f"{name_of(page)} links to {link}; {file.name} has no such heading"


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / link.partition("#")[0]).resolve() for link in _links(index)}
    assert set((ROOT / "docs").glob("*.md")) - {index} <= reached
    assert set(EXAMPLES) <= reached
    assert index in {(ROOT / link).resolve() for link in _links(ROOT / "README.md")}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("docs/problems.md", evenhand.problems.names()),
        ("docs/policies.md", [word for entry in REGISTRY for word in (entry.name, entry.abbreviation)]),
        ("docs/exact-solvers.md", ["auto", *METHODS]),
        ("docs/command-line.md", [f"evenhand {name}" for name in application.list_commands(None)]),
    ],
)
def test_everything_that_has_a_name_has_a_place(page: str, words: list[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [word for word in words if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]


def test_every_public_name_is_documented() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert not [name for name in evenhand.__all__ if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]


def test_architecture_draws_the_layers_that_are_enforced() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contract = tomllib.load(file)["tool"]["importlinter"]["contracts"][0]
    blocks = read_blocks(ROOT / "docs" / "architecture.md")
    drawn = next(block.body.splitlines() for block in blocks if block.language == "text")
    assert [re.split(r"\s{2,}", line)[0] for line in drawn if line.strip()] == contract["layers"]


def _words_of_picture(file: Path) -> list[str]:
    texts = ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).strip() for text in texts]


def test_pictures_are_what_the_library_computes(tmp_path: Path) -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "make_images.py"))["draw_all"](tmp_path)
    kept = sorted((ROOT / "docs" / "images").glob("*.svg"))  # page.png is a photograph of a browser
    assert sorted(file.name for file in drawn) == [file.name for file in kept]
    for file in kept:
        shown, came = _words_of_picture(file), _words_of_picture(tmp_path / file.name)
        assert len(shown) == len(came) > 0
        assert all(map(alike, shown, came)), f"{name_of(file)} is out of date: run python docs/make_images.py"


def test_notebook_is_that_of_the_page() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "make_notebook.py"))["written"]()
    assert (ROOT / "examples" / "study.ipynb").read_text(encoding="utf-8") == written, "run docs/make_notebook.py"


# The comparison itself


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("welfare 13.7670", "welfare   13.7671 \n\n"),
        ("time 3 ms", "time 1.2 s"),
        ("gap 6.8e-10", "gap 0"),
        ("a\n...\nd 1.5", "a\nb\nc\nd 1.5"),
        ("a\n...", "a\nb"),
        ("── a", "───── a"),
    ],
)
def test_outputs_alike(shown: str, came: str) -> None:
    assert differences(shown, came) == []


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("welfare 13.7670", "welfare 13.7672"),
        ("5 arms", "6 arms"),
        ("gap 6.8e-10", "gap 0.01"),
        ("a\n...\nd", "a\nb\nc"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("3 ms of rest", "4 of rest"),
    ],
)
def test_outputs_not_alike(shown: str, came: str) -> None:
    assert differences(shown, came) != []


def test_json_outputs_are_compared_by_value() -> None:
    shown = {"welfare": {"value": 13.7670112}, "values": [1.0, 2.0], "seconds": 0.5, "exact": True}
    assert json_alike(shown, {**shown, "seconds": 0.1})
    assert not json_alike(shown, {**shown, "values": [1.0, 2.1]})
    assert not json_alike(shown, {**shown, "exact": False})
    assert not json_alike(shown, {"welfare": {"value": 13.7670112}})
