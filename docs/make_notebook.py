"""Writes examples/study.ipynb, the notebook of the tutorial docs/tutorial-study.md: its text and its cells.

python docs/make_notebook.py; a test compares the notebook with the page. Relative links become links to the pages.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE, NOTEBOOK = ROOT / "docs" / "tutorial-study.md", ROOT / "examples" / "study.ipynb"


def notebook(page: str) -> dict[str, object]:
    """Return a notebook: a code cell per Python block, Markdown cells between them, and no outputs."""
    cells = []
    for number, part in enumerate(re.split(r"^```python\n(.*?)^```\n", page, flags=re.MULTILINE | re.DOTALL)):
        if number % 2:
            cells.append({"cell_type": "code", "execution_count": None, "outputs": []} | _source(part))
            continue
        text = re.sub(r"^```text\n.*?^```\n|^!\[.*\)\n", "", part, flags=re.MULTILINE | re.DOTALL).strip()
        if text:
            linked = re.sub(r"\]\((?=[\w-]+\.md)", "](../docs/", text).replace("../examples/", "")
            cells.append({"cell_type": "markdown"} | _source(linked))
    for number, cell in enumerate(cells):
        cell |= {"id": f"cell-{number}", "metadata": {}}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _source(text: str) -> dict[str, object]:
    return {"source": text.rstrip("\n").splitlines(keepends=True)}


def written() -> str:
    """Return the text of the notebook."""
    return json.dumps(notebook(PAGE.read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(written(), encoding="utf-8")
