"""The documentation site: `make docs` builds docs/_build/html.

The sections of the front page are the sidebar. Mathematics becomes MathML, so that the site works without a network.
"""

import re
import shutil
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.pycode import ModuleAnalyzer
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
shutil.rmtree(ROOT / "docs" / "_api", ignore_errors=True)  # pages of names that are no longer public

import evenhand  # noqa: E402

FROM_ROOT = {"readme": "README.md", "changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
"""Pages whose text is a file of the root."""

# -- Settings of Sphinx ----------------------------------------------------------------------------------------------

project = "evenhand"
author = "the evenhand developers"
version = release = evenhand.__version__
root_doc = "index"
exclude_patterns = ["_build"]
templates_path = ["_templates"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
suppress_warnings = ["misc.highlighting_failure"]  # faulty files are shown on purpose

html_theme = "furo"
html_title = f"evenhand {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autosummary_generate = True
autosummary_imported_members = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
napoleon_use_ivar = True
napoleon_use_rtype = False
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|scipy|pandas|polars|matplotlib|collections|pathlib|os|types|typing|abc)\..*"),
    ("py:.*", r"evenhand\.\w+\..*|_?[A-Z]\w*|sparse\.csr_array"),  # internal classes and type variables in annotations
]

# -- Pages -----------------------------------------------------------------------------------------------------------


def read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Take the text of pages of the root from there, and add the sidebar to the front page."""
    text = source[0]
    if name in FROM_ROOT:
        text = (ROOT / FROM_ROOT[name]).read_text(encoding="utf-8")
        text = re.sub(r'(\]\(|src=")(?![a-z]+:|#)', r"\1../", text)
        text = re.sub(r'(\]\(|src=")\.\./docs/', r"\1", text)
    for page, file in FROM_ROOT.items():
        text = text.replace(f"](../{file}", f"]({page}.md")
    text = re.sub(r"\]\((\.\./examples/[^)#]+\.md)\)", r"](path:\1)", text)  # not pages of the site
    if name == root_doc:
        text += sidebar(text)
    if name == "reproduction":
        text += "\n:::{toctree}\n:hidden:\n:glob:\n\nreproduction/*\n:::\n"
    source[0] = text


def sidebar(front: str) -> str:
    """Return tables of contents with the sections and pages of the front page."""
    contents = ""
    for section in re.split(r"^## ", front, flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^\| \[([^\]]+)\]\(([\w-]+)\.(?:md|rst)\)", section, re.MULTILINE)
        entries = "\n".join(f"{title} <{page}>" for title, page in pages)
        contents += (
            f"\n:::{{toctree}}\n:hidden:\n:caption: {section.splitlines()[0]}\n\n{entries}\n:::\n" if pages else ""
        )
    return contents


# -- References to Python objects --------------------------------------------------------------------------------------


def find_public(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """Resolve a class by its name, wherever it is documented: annotations name the module that defines it."""
    name = node.get("reftarget", "").rpartition(".")[2]
    domain = env.domains.python_domain
    for full in domain.objects:
        if full.rpartition(".")[2] == name and domain.objects[full].objtype in ("class", "exception", "data"):
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, content)
    return None


def skip_fields(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out fields, which the docstring of their class describes."""
    return True if what == "class" and not callable(thing) and not isinstance(thing, property) else None


def read_signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, text: str | None, returned: str
) -> object:
    """Write defaults that are no expressions, such as <factory>, as an ellipsis."""
    return text and re.sub(r"<[^>]*>", "...", text), returned


def read_property(self: GoogleDocstring) -> tuple[str, list[str]]:
    """Read the docstring of a property as text, not as `type: description`."""
    return "", self._dedent(self._consume_to_end())


GoogleDocstring._consume_inline_attribute = read_property
# A function with overloads is shown once, with all of its arguments.
ModuleAnalyzer.overloads = property(lambda self: {}, lambda self, found: None)


# -- Mathematics -------------------------------------------------------------------------------------------------------


def write_math(self: HTML5Translator, node: nodes.Element) -> None:
    """Write MathML."""
    block = isinstance(node, nodes.math_block)
    formula = re.sub(r"\\[Bb]ig+[lrm]?(?![a-z])", "", node.astext()).replace(r"\dots", r"\ldots")
    formula = re.sub(r"(?<!\^)'", r"^\\prime", formula)
    mathml = tex2mathml(formula, as_block=block)
    self.body.append(f'<div class="math">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect the steps of a build."""
    app.add_html_math_renderer("mathml", inline_renderers=(write_math, None), block_renderers=(write_math, None))
    app.connect("source-read", read_page)
    app.connect("missing-reference", find_public)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-signature", read_signature)
