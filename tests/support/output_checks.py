"""Texts that try to be more than data, and what an output of each format must be whatever it is given."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import unicodedata
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

from markdown_it import MarkdownIt

from modelglass.report.embedded import extract

# No dot, slash or NUL: modules, files and tensors may all be called so.
NASTY = (
    "::error title=x::done", "  ::set-output name=a::b", "\u00a0::add-mask::x", "word ::warning::split",
    "x" * 61 + " ::notice::wrapped", "##vso[task setvariable]b", "a##[error]b", "###[group]",
    "a ##teamcity[buildStop]", "travis_fold:start:a", "section_start:1:a\r\x1b[0K", "a\n::error::line",
    "a\r\n##[command]x", "=cmd|'calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\uff1d1",
    "\x1b[2J\x1b[31mred", "\x1b]8;;https:x\x07y", "\x9b31m", "a\x7fb", "\x85", "\u202egnp",
    "\u2066a\u2069", "\u200e\u200f\u061c", "a\u2028b\u2029c", "a\u200bb\u200d\ufeff",
    "\U000e0041\U000e007f", "\ufe0f\U000e0100", "\ud800", "\udcff", "\ufffe\uffff", "\ue000", "\u3164",
    "<script>alert(1)<#script>", "<img src=x onerror=a>", "--><b>", "]]>", "&lt;b&gt;&#35;",
    '"onload="a', "' onload='a", "[a](b)", "![a](b)", "<https:&#47;&#47;a>", "https:&#x2f;&#x2f;a",
    "@someone", "a@example", "#1", "`code`", "```", "~~~", "|", "a|b", "\\", "\\|", "- item", "+ item",
    "* item", "1) item", "---", "===", "# head", "    code", "> quote", "$x$", "{0}", "{{0}}",
    "{% x %}", "%%{init: {}}%%", "end", "click n0 call a()", ";", "n0 --> n1", "}", '"];', "漢字", "é",
    "🦙", "a b", "NaN",
)  # fmt: skip

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
INVISIBLE = set("\u3164\ufe0f\U000e0100")
COMMAND = re.compile(r"(?m)^[^\S\n]*(?:::|travis_(?:fold|time):|section_(?:start|end):)|##\w*\[")
COLOUR = re.compile(r"\x1b\[\d+m")


def check_plain(text: str) -> None:
    """Nothing in the text is obeyed or hidden by a terminal, or obeyed by what keeps its lines in a log."""
    text.encode()
    hidden = {char for char in text if unicodedata.category(char) in HIDDEN or char in INVISIBLE}
    assert hidden <= {"\n"}, sorted(map(ascii, hidden))
    found = COMMAND.search(text)
    assert found is None, text[found.start() : found.end() + 40]


def check_coloured(text: str) -> None:
    check_plain(COLOUR.sub("", text))


def check_json(text: str) -> Any:
    assert text.isascii()
    return json.loads(text, parse_constant=lambda name: _refuse(f"{name} is not JSON"))


def _refuse(problem: str) -> None:
    raise AssertionError(problem)


def check_csv(text: str) -> None:
    rows = list(csv.reader(io.StringIO(text), strict=True))
    assert len({len(row) for row in rows}) == 1
    for cell in (cell for row in rows for cell in row):
        formula = cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r", "\uff1d"))
        assert not formula or re.fullmatch(r"-?\d+(\.\d+)?", cell), cell


PAGE = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
TAGS = {
    "h2",
    "h3",
    "p",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "ul",
    "li",
    "strong",
    "blockquote",
    "br",
}


def check_markdown(text: str) -> None:
    """The page has the elements that we make, and rows of as many cells as their heads."""
    page = PAGE.render(text)
    page = re.sub(
        r'(?s)<pre><code class="language-(?:text|mermaid)">[^<>]*</code></pre>', "", page, count=1
    )  # memory's curve, or a flow
    assert set(re.findall(r"</?(\w+)", page)) <= TAGS, set(re.findall(r"</?(\w+)", page)) - TAGS
    assert "<!--" not in page
    for table in re.findall(r"(?s)<table>.*?</table>", page):
        assert len({row.count("</t") for row in re.findall(r"(?s)<tr>(.*?)</tr>", table)}) == 1
    shown = html.unescape(re.sub(r"<[^>]*>", "", page))
    assert not re.search(r"://\w|www\.\w|@\w|#\d", shown)


def check_svg(text: str) -> None:
    for element in ElementTree.fromstring(text).iter():
        assert not element.tag.endswith(("}script", "}foreignObject", "}a"))
        assert not any(name.startswith("on") for name in element.attrib)


def check_sarif(text: str) -> None:
    document = check_json(text)
    for result in document["runs"][0]["results"]:
        message = result["message"]["text"]
        assert "](" not in message
        assert not re.search(r"[{}]", message.replace("{{", "").replace("}}", ""))
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"(?:[A-Za-z0-9/._~-]|%[0-9A-F]{2}|file:)*", uri)
    check_visible(document)


def check_visible(value: Any) -> None:
    if isinstance(value, str):
        check_plain(value.replace("::", "").replace("##", "").replace("travis_", "").replace("section_", ""))
    elif isinstance(value, dict):
        check_visible([*value, *value.values()])
    elif isinstance(value, list):
        for item in value:
            check_visible(item)


PARTS = set(
    "a aside b blockquote body br button caption circle code dd details div dl dt figcaption figure footer "
    "form g h1 h2 h3 h4 head header html i input label li line main mark meta nav ol option output p path "
    "polygon rect script section select small span strong style summary svg table tbody td text tfoot th "
    "thead title tr tspan ul".split()
)


class Markup(HTMLParser):
    """The elements and attributes of a page, and what its scripts and styles contain."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.insides: list[tuple[dict[str, str | None], str]] = []
        self._inside: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._inside = {"tag": tag, **dict(attrs)} if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.insides.append((self._inside, data))
            self._inside = None


def check_html(text: str) -> None:
    """The page has the elements that we make, nothing that acts by an attribute, and a policy that holds."""
    page = Markup(text)
    assert page.tags <= PARTS, page.tags - PARTS
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("style", "src", "srcset", "action", "formaction"), (tag, name)
        assert name != "href" or (value or "").startswith("#"), value
    (policy,) = (value for _, name, value in page.attributes if name == "content" and "default-src" in value)  # type: ignore[operator]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for element, content in page.insides:
        if element.get("type") is None:
            digest = b64encode(sha256(content.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy
        else:
            assert re.fullmatch(r"[A-Za-z0-9+/=]+", content)
    json.loads(extract(text))


CHECKS: dict[str, Callable[[str], Any]] = {
    "json": check_json,
    "csv": check_csv,
    "html": check_html,
    "markdown": check_markdown,
    "svg": check_svg,
    "sarif": check_sarif,
}


def check(format: str, text: str) -> None:
    """The output is what it must be in any format, and in its own."""
    check_plain(text)
    CHECKS.get(format, check_plain)(text)
