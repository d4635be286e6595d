"""What the tests of the site read in a page: links, ids, pictures; and the links that break."""

import posixpath
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """ids, links (href and src) and pictures of one HTML file."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.pictures: list[dict] = []
        self.headings: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        if tag == "img":
            self.pictures.append(attributes)
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))


def read_pages(folder: Path) -> dict[str, Page]:
    """All pages of a site by their path."""
    return {
        path.relative_to(folder).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
    }


def broken_links(folder: Path) -> list[str]:
    """Links to files or anchors that are not there, and those that leave the folder."""
    pages = read_pages(folder)
    found = []
    for name, page in pages.items():
        for link in page.links:
            if link.startswith(("https://", "data:")):
                continue
            target, _, anchor = link.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            path = path if target else name
            if path.startswith("..") or "://" in link or not (folder / path).is_file():
                found.append(f"{name}: {link}")
            elif anchor and anchor not in pages[path].ids:
                found.append(f"{name}: {link} (no such place)")
    return found
