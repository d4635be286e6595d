"""What the search knows: the parts of all pages, and which words mean the same.

find.js ranks them in the browser. It learns from the glossary that "MHA", "multi-head attention"
and "多头注意力" are one thing; ALSO adds words that learners bring along and the course does not
use.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from .cells import Part
from .glossary import anchor, rows
from .words import plain

# What somebody types -> the course's own words.
ALSO = (
    ("vram", "bill card fits"),
    ("gpu memory", "bill card fits"),
    ("显存", "bill card fits"),
    ("内存", "memory"),
    ("gpu", "card"),
    ("显卡", "card"),
    ("positional encoding", "RoPE"),
    ("位置编码", "RoPE"),
    ("rotary embedding", "RoPE"),
    ("mixture of experts", "MoE"),
    ("moe", "experts"),
    ("mlp", "FFN"),
    ("hyperconnections", "hyper-connections"),
    ("skip connection", "residual stream"),
    ("residual connection", "residual stream"),
    ("残差", "residual stream"),
    ("compression", "groups latent"),
    ("压缩", "groups latent"),
    ("quantise", "rounding scale FP4"),
    ("topk", "top-k"),
    ("not enough", "bill"),
    ("flash attention", "online softmax"),
    ("paged attention", "page"),
    ("vllm", "page"),
    ("prompt caching", "prefix cache"),
    ("context caching", "prefix cache"),
    ("generate", "decode"),
    ("install", "environment builds 运行"),
    ("set up", "environment builds 运行"),
    ("setup", "environment builds 运行"),
    ("安装", "运行"),
    ("syllabus", "afternoon weekend term"),
    ("syllabi", "afternoon weekend term"),
    ("curriculum", "afternoon weekend term"),
    ("course plan", "afternoon weekend term"),
    ("大纲", "afternoon weekend term"),
    ("课程安排", "afternoon weekend term"),
    ("练习", "exercises"),
    ("答案", "exercises"),
    ("价格", "bill dollars"),
    ("代价", "costs"),
    ("成本", "bill dollars"),
    ("训练", "training"),
    ("长文本", "context"),
    ("大模型", "model"),
    ("多少钱", "bill"),
)

# What somebody types -> the pages that answer it from their beginning, at most one a language.
ANSWERED_BY = {
    "syllabus": ("docs/syllabi.html",),
    "syllabi": ("docs/syllabi.html",),
    "curriculum": ("docs/syllabi.html",),
    "course plan": ("docs/syllabi.html",),
    "大纲": ("docs/syllabi.html",),
    "install": ("README.html", "README.zh-CN.html"),
    "set up": ("README.html", "README.zh-CN.html"),
    "setup": ("README.html", "README.zh-CN.html"),
}


@dataclass(frozen=True)
class Entry:
    """One place that can be found. kind: lesson, exercises, glossary or other."""

    page: str
    anchor: str
    title: str
    heading: str
    words: str
    code: str = ""

    @property
    def kind(self) -> str:
        if self.page == "docs/glossary.html" and self.anchor.startswith("term-"):
            return "glossary"
        folder = self.page.split("/")[0]
        return {"notebooks": "lesson", "exercises": "exercises"}.get(folder, "other")

    @property
    def language(self) -> str:
        return language(self.page)


def language(page: str) -> str:
    """The language in which a page of the site is written, as HTML names it."""
    return "zh-CN" if page.endswith(".zh-CN.html") else "en"


def of_parts(page: str, title: str, parts: list[Part]) -> list[Entry]:
    """The places of a notebook's page."""
    return [
        Entry(page, part.anchor, title, part.heading, part.words, _names(part.code))
        for part in parts
        if part.words
    ]


def of_document(page: str, title: str, main: str) -> list[Entry]:
    """The places of a markdown file's page: each section, and in the glossary each row."""
    main = re.sub(r'<a class="anchor".*?</a>', "", main)
    main = re.sub(r'<span class="on-phones">.*?</span>', "", main)
    found, section, heading = [], "", title
    for block in re.split(r'(?=<h[23] id=|<tr role="row" id=)', main):
        place = re.match(r'<(h[23]|tr)[^>]* id="([^"]+)"', block)
        words = " ".join(plain(re.sub(r"</(td|th)>", " · ", block)).split()).strip(" ·")
        if place and place[1] == "tr":
            found.append(Entry(page, place[2], title, words.split(" · ")[0], words))
            continue
        if place:
            section, heading = place[2], plain(block.split(f"</{place[1]}>")[0]).strip()
        if words:
            found.append(Entry(page, section, title, heading, words))
    return found


def _names(code: str) -> str:
    """The names in some code, each once: enough to find it by."""
    return " ".join(dict.fromkeys(re.findall(r"[A-Za-z_]\w\w+", code)))


def script(entries: list[Entry], glossary: str) -> str:
    """search.js: the places, and the names of each term."""
    known = [
        {
            "u": entry.page,
            "a": entry.anchor,
            "t": entry.title,
            "h": entry.heading,
            "w": entry.words,
            "c": entry.code,
            "k": entry.kind,
            "l": entry.language,
        }
        for entry in entries
    ]
    terms = [[anchor(term), *all_names] for term, all_names in rows(glossary)]
    also = [[typed, ours, *ANSWERED_BY.get(typed, ())] for typed, ours in ALSO]
    made = {"entries": known, "terms": terms, "also": also}
    words = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    return f"window.courseIndex = {words};\n"
