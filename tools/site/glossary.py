"""The glossary's table as pages need it: a place for each term, and its names for the search."""

from __future__ import annotations

import re

_ROW = re.compile(
    r"<tr>\s*<td><strong>(?P<term>.+?)</strong>(?P<more>.*?)</td>\s*<td>(?P<chinese>.*?)</td>"
    r"\s*<td>(?P<words>.*?)</td>\s*<td>(?P<chapter>.*?)</td>\s*</tr>",
    re.S,
)
_BRACKET = re.compile(r"\s*[(（](.+?)[)）]")


def names(term: str, chinese: str) -> list[str]:
    """All that a term is called, in both languages.

    What stands in brackets is a name where it is a short form or foreign ("多头注意力（MHA）");
    else it only explains ("bias (of a router)"). Of "KV 缓存" the Chinese half is a name too.
    """
    found = []
    for text in term.split(";"):
        found.append(_BRACKET.sub("", text).strip())
        found += [inner for inner in _BRACKET.findall(text) if inner != inner.lower()]
    for text in _BRACKET.sub("", chinese).split("、"):
        found.append(text.strip())
        found += re.findall(r"^[A-Z]+ ([\u4e00-\u9fff]{2,})$", text.strip())
    found += [inner for inner in _BRACKET.findall(chinese) if inner.isascii()]
    return list(dict.fromkeys(name for name in found if name))


def rows(text: str) -> list[tuple[str, list[str]]]:
    """(term, its names) of each line of docs/glossary.md."""
    found = []
    for line in text.splitlines():
        if line.startswith("| **"):
            first, chinese = (cell.strip() for cell in line.strip("|").split(" | ")[:2])
            term = first.split("**")[1]
            found.append((term, names(first.replace("**", ""), chinese)))
    return found


def anchor(term: str) -> str:
    """The id of a term's row: "KV cache" -> "term-kv-cache"."""
    return "term-" + re.sub(r"[^\w]+", "-", term.lower()).strip("-")


def marked(markup: str) -> str:
    """The page's HTML with an id for each row, and roles, so that a phone may show a row as a
    block and a screen reader still finds a table."""

    def row(match: re.Match) -> str:
        return (
            f'<tr role="row" id="{anchor(match["term"])}"><th scope="row" role="rowheader">'
            f"<strong>{match['term']}</strong>{match['more']}</th>"
            f'<td role="cell" lang="zh-CN">{match["chinese"]}</td>'
            f'<td role="cell">{match["words"]}</td>'
            f'<td role="cell"><span class="on-phones">chapter </span>{match["chapter"]}</td></tr>'
        )

    made = _ROW.sub(row, markup)
    return (
        made.replace("<table>", '<table class="terms" role="table">', 1)
        .replace("<th>中文</th>", '<th lang="zh-CN">中文</th>', 1)
        .replace("<thead>", '<thead role="rowgroup">', 1)
        .replace("<tbody>", '<tbody role="rowgroup">', 1)
    )
