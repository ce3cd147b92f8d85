"""Check the language of everything that a person reads, and the size of the pages.

    python tests/language.py               number of findings per file; exit code 1 if there are any
    python tests/language.py PATH ...      each finding in these files or folders, with its line and a better word

Checked are the Markdown pages (without code), docstrings of public names, help texts of the command line, messages, and
templates. Pages have at most 250 lines, and lines at most 120 characters outside code, tables, formulas and links.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "evenhand"
MAX_LINES, MAX_WIDTH = 250, 120
LONG = ("CHANGELOG", "tutorial-")
"""Beginnings of names of pages that may have more lines; the tutorials contain their data and outputs."""

UNITS = "arm|step|state|type|action|row|group|episode|round|block|process|draw|person|machine|make|site"
COUNTED = (
    "rows?|lines?|columns?|calls?|visits?|services?|units?|bytes?|kB|MB|numbers?|values?|vectors?|rewards?|repairs?|entry"
    "|machines?|replaced|replacements?|jumps?|ms|seconds?|minutes?|episodes?|steps?|nats|observations?|parameters?|one"
)
VOCABULARY = {  # pattern: better words. Spaces match line breaks.
    r"tells?|telling|told": "report, show, state, distinguish",
    r"kept|keeps? to": "stored, retained, met, unchanged",
    r"nobody|somebody|whoever|whomever|everybody": "no arm, no one, the user; or the passive",
    r"one's own|oneself": "your own, user-defined",
    r"(?:a|the|each|every|which|of) persons? (?:who|that|whom)": "the patient, the planner, the user",
    r"(?<!there\s)(?:is|are|was) no(?! (?:longer|more|less|better|worse|fewer|greater|larger|smaller)\b)": "is not",
    r"(?:is|are|was|were) to be(?! \w+ing)": "must be",
    r"(?:when|where|if) absent|are no longer there": "by default, if missing",
    r"(?:what|that|(?:no|some)thing) (?:c[ao]mes?|bec[ao]mes?) of|c[ao]mes? of (?:it|that|this)": "result, outcome",
    rf"(?:{COUNTED}) (?:more |less )?an? (?:{UNITS})(?! (?:later|before|earlier|is|has))": "per",
    r"(?:\d[\d.]*|requests?|steps?|arms?) a (?:second|client|part|step)": "per",
    r"leans? on|goes before|(?:goes|going|go|went) on(?! to)": "shrunk towards, take precedence, continue",
    r"asks for|ask again|asked": "request, require",
    r"weigh(?:s|ed|ing)?|judg(?:e|es|ed|ing)": "weight, evaluate, compare",
    r"anew": "again, new",
    r"mend(?:s|ed|ing)?(?! \()": "repair, fix",
    r"looked at|looks at|looking at": "evaluate, inspect, read",
    r"what [^.?!|]{0,40}(?:is|are|was|were) worth": "value of",
    r"the way (?:to|around)|a way around": "how to, alternative",
    r"(?:can|could|may|might) be had|is had|are had": "available",
    r"whereabouts|whose turn it is": "observed states",
    r"in the lurch|fares? well|the like of|what of|lest|aught|naught|thereof|whence": "plain words",
    r"such as (?:have|are|do)|those as": "plain words",
    r"what was (?:said|known|meant)|what is (?:said|meant)": "stated, known, intended",
    r"what is being done": "the action, the work",
    r"no (?:policy|plan|method|look|run) (?:has|had)": "state it positively",
    r"(?:made|taken|gone|gotten) out of it": "plain words",
    r"at every door|who may ask|speaks? for itself|in so many words|word for word": "plain words",
}
QUESTION = r"(?:What|Whether|Where|Who|Whose|How)\b"
"""Opening of a docstring that should be a noun phrase or an imperative."""

WORDS = [
    (re.compile(rf"\b(?:{pattern})(?!\w)".replace(" ", r"\s+"), re.IGNORECASE), better)
    for pattern, better in VOCABULARY.items()
]
CLAUSE = re.compile(r"(?:^|[.;:]\s+)What\s(?!if\b)[^?.:|\n]*(?:\n[^?.:|\n]+)*\.(?=\s|$)", re.MULTILINE)
"""A sentence that begins with a free relative: "What does not fit is refused"."""

GENERATED = re.compile(r"<!-- table: .*?<!-- end -->", re.DOTALL)
"""Part of a page that `python -m paper --docs` writes."""

ARGUMENT = re.compile(r"^ +\w+(?=: )", re.MULTILINE)
"""Name of an argument in a docstring."""

Text = tuple[int, str]
"""Line of the beginning, and text."""


def find_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield place in the text and description of each word or phrase to avoid."""
    for pattern, better in WORDS:
        for match in pattern.finditer(text):
            yield match.start(), f"{' '.join(match[0].split())!r}: {better}"
    for match in CLAUSE.finditer(text):
        yield match.start(), f"{' '.join(match[0].split())[:60]!r}: begin with a noun"


def without_code(page: str) -> str:
    """Return the prose of a Markdown page with its lines and columns unchanged."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "x" if match[0].startswith("`") and "\n" not in match[0] else " ", match[0])

    page = re.sub(r"^(`{3,}).*?^\1$", blank, page, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`]+`|<!--.*?-->|(?<=\])\([^)\s]*\)", blank, page, flags=re.DOTALL)


def page_findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and description of the findings in a Markdown page."""
    page = path.read_text(encoding="utf-8")
    prose = without_code(page)
    for place, finding in find_words(prose):
        yield prose.count("\n", 0, place) + 1, finding
    generated = {
        n for block in GENERATED.finditer(page) for n in range(*(page.count("\n", 0, p) for p in block.span()))
    }
    lines = prose.splitlines()
    for number, line in enumerate(lines, start=1):
        shown = line.startswith(("|", "<", "![", "$$")) or number - 1 in generated
        if len(line.rstrip()) > MAX_WIDTH and not shown:
            yield number, f"{len(line)} characters: at most {MAX_WIDTH}"
    if len(lines) > MAX_LINES and not path.name.startswith(LONG):
        yield len(lines), f"{len(lines)} lines: at most {MAX_LINES}"


def text_findings(texts: Iterator[Text]) -> Iterator[tuple[int, str]]:
    """Yield line and description of the findings in docstrings, messages and templates."""
    for line, text in texts:
        for place, finding in find_words(ARGUMENT.sub(lambda name: "x" * len(name[0]), text)):
            yield line + text.count("\n", 0, place), finding


def docstrings(path: Path) -> dict[int, str]:
    """Return docstrings and descriptions of fields by line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.value.lineno: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def sentences(path: Path) -> Iterator[Text]:
    """Yield strings of two words or more that are not docstrings: messages, help texts, labels."""
    documented = docstrings(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and node.lineno not in documented and re.search(r"[A-Za-z] +[A-Za-z]", text):
            yield node.lineno, text


def public_docstrings() -> Iterator[tuple[Path, Text]]:
    """Yield docstrings of the public names, of their methods and fields, with their files."""
    sys.path.insert(0, str(SOURCE.parent))
    import evenhand

    rooms = [evenhand, evenhand.problems, evenhand.policies, evenhand.errors, evenhand.uncertainty]
    things = [getattr(room, name) for room in rooms for name in getattr(room, "__all__", dir(room))]
    things = [thing for thing in things if inspect.isclass(thing) or inspect.isfunction(thing)]
    seen = set()
    for thing in things:
        if not thing.__module__.startswith("evenhand") or thing in seen:
            continue
        seen.add(thing)
        path = Path(inspect.getsourcefile(thing) or "")
        lines, first = inspect.getsourcelines(thing)
        for line, text in docstrings(path).items():
            if first <= line < first + len(lines):
                yield path, (line, text)


def template_texts(path: Path) -> Iterator[Text]:
    """Yield the words of an HTML template or a script, each line on its own."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if path.suffix == ".js":
            line = re.sub(r"\$\{[^}]*\}", "", " ".join(re.findall(r"\"[^\"]*\"|'[^']*'|`[^`]*`", line)))
        yield number, re.sub(r"\{[{%#].*?[}%#]\}|<[^>]*>", " ", line)


def findings() -> dict[Path, list[tuple[int, str]]]:
    """Return the findings of every file that has any."""
    found: dict[Path, set[tuple[int, str]]] = {}
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reproduction").glob("*.md")]:
        found.setdefault(path, set()).update(page_findings(path))
    for path in SOURCE.rglob("*.py"):
        found.setdefault(path, set()).update(text_findings(sentences(path)))
        if "cli" in path.parts:
            found[path].update(text_findings(iter(docstrings(path).items())))
    for path, (line, text) in public_docstrings():
        found.setdefault(path, set()).update(text_findings(iter([(line, text)])))
        if re.match(QUESTION, text):
            found[path].add((line, f"{text[:40]!r}: begin with a noun or an imperative"))
    for path in [*SOURCE.rglob("*.html"), *SOURCE.rglob("*.js")]:
        found.setdefault(path, set()).update(text_findings(template_texts(path)))
    path = ROOT / "tests" / "golden" / "messages.json"
    messages = json.loads(path.read_text(encoding="utf-8"))
    found[path] = set(text_findings((1, message["text"]) for message in messages.values()))
    return {path: sorted(each) for path, each in sorted(found.items()) if each}


def main(arguments: list[str]) -> int:
    """Print the findings; return the exit code."""
    chosen = [Path(argument).resolve() for argument in arguments] or [ROOT]
    found = {path: each for path, each in findings().items() if any(path.is_relative_to(root) for root in chosen)}
    for path, each in found.items():
        name = path.relative_to(ROOT)
        if arguments:
            print("\n".join(f"{name}:{line}: {finding}" for line, finding in each))
        else:
            print(f"{len(each):5}  {name}")
    total = sum(map(len, found.values()))
    print(f"{total} findings in {len(found)} files")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
