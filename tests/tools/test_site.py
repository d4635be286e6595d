"""The web pages of the whole course: links, pictures, words, the search, what is refused."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from site_pages import broken_links, read_pages

from tinymodels.widgets import BytesExplorer, Ladder
from tools.__main__ import main
from tools.site import chapters as chapter_list
from tools.site.cells import body
from tools.site.live import live
from tools.site.write import write

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
HEAD = "# 00 · Halves\n\n*20 minutes.* Objectives\n\n- halve\n\n> **The number: 7.**"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "site"
    write(ROOT, folder)
    return folder


def nowhere(url):
    return None


def notebook(*outputs, source="halve(7)", **metadata):
    cell = nbformat.v4.new_code_cell(source, outputs=list(outputs), metadata=metadata)
    words = nbformat.v4.new_markdown_cell(HEAD)
    return nbformat.v4.new_notebook(cells=[words, cell])


def output(**data):
    named = {name.replace("_", "/", 1): value for name, value in data.items()}
    return nbformat.v4.new_output("display_data", data=named)


def small_course(root: Path, made) -> Path:
    """A folder with one notebook, and of the docs what every site has."""
    for name in ("notebooks", "exercises", "docs"):
        (root / name).mkdir(parents=True)
    nbformat.write(made, root / "notebooks" / "00__start_here.ipynb")
    for name in ("bytes_per_token.png", "glossary.md"):
        (root / "docs" / name).write_bytes((ROOT / "docs" / name).read_bytes())
    return root


# ---------------------------------------------------------------- the whole course


def test_no_link_is_broken(site):
    assert broken_links(site) == []


def test_the_link_check_finds_what_is_broken(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html"></a><a href="#x"></a><img src="../c.png">'
        '<a href="a.html#y"></a><p id="y"></p>'
    )
    assert [line.split(": ")[1] for line in broken_links(tmp_path)] == [
        "b.html",
        "#x (no such place)",
        "../c.png",
    ]


def test_every_lesson_and_exercise_has_a_page(site):
    pages = read_pages(site)
    for folder in ("notebooks", "exercises"):
        for path in (ROOT / folder).glob("*.ipynb"):
            assert f"{folder}/{path.stem}.html" in pages
    front = pages["index.html"]
    assert {f"notebooks/{stem}.html" for stem in LESSONS} <= set(front.links)
    assert list(chapter_list.STEMS) == sorted(chapter_list.STEMS) and len(chapter_list.STEMS) == 14


def test_every_picture_has_words_and_a_size(site):
    count = 0
    for name, page in read_pages(site).items():
        for picture in page.pictures:
            count += 1
            assert len(picture.get("alt", "")) > 10, (name, picture)
            if name.startswith("notebooks/") or name == "index.html":
                assert int(picture["width"]) > 0 and int(picture["height"]) > 0
    stored = [
        output
        for stem in LESSONS
        for cell in nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", 4).cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    assert count == len(stored) + 2  # and the two of the front page


def test_headings_ids_and_scripts_are_in_order(site):
    for name, page in read_pages(site).items():
        assert page.headings.count(1) == 1, name
        assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:])), name
        assert len(page.ids) == len(set(page.ids)), name


def test_nothing_comes_from_elsewhere(site):
    for path in site.rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"<(script|link|img)[^>]*https?:", text), path
            assert not re.search(r"\bfetch\(|XMLHttpRequest|@import|url\(\s*['\"]?http", text), path


def test_the_search_knows_every_page(site):
    text = (site / "search.js").read_text(encoding="utf-8")
    entries = json.loads(text.removeprefix("window.courseIndex = ").rstrip().rstrip(";"))
    pages = read_pages(site)
    assert {entry["u"] for entry in entries} == set(pages) - {"index.html"}
    for entry in entries:
        assert not entry["a"] or entry["a"] in pages[entry["u"]].ids
    assert any("square root" in e["w"] and e["u"].startswith("notebooks/01") for e in entries)


def test_the_live_widgets_stand_where_the_notebook_has_them(site):
    def names(page):
        text = (site / page).read_text(encoding="utf-8")
        return re.findall(r'class="live" data-widget="(\w+)" data-start="([^"]+)"', text)

    (start,) = names("notebooks/00__start_here.html")
    assert start[0] == "ladder"
    (model,) = names("notebooks/01__attention.html")
    assert model[0] == "explorer" and "DeepSeek 67B" in model[1]
    assert [name for name, _ in names("index.html")] == ["ladder"]


# ---------------------------------------------------------------- single pieces


@pytest.mark.parametrize("reached", [0, 1, 4, 6])
def test_a_ladder_is_found_by_its_words(reached):
    widget = Ladder(reached)
    assert json.loads(live(repr(widget)).start) == widget.settings


@pytest.mark.parametrize("model, context", [("Falcon 7B (MQA)", 128), ("LLaMA 65B (MHA)", 2**20)])
def test_an_explorer_is_found_by_its_words(model, context):
    widget = BytesExplorer(model, context)
    assert live(repr(widget)).name == "explorer"
    assert json.loads(live(repr(widget)).start) == widget.settings
    assert live("Cache X-ray: 44 rows") is None


def test_a_widget_with_other_numbers_is_refused():
    with pytest.raises(ValueError, match="no start .*389,121 bytes a token.* rebuild the notebook"):
        live("Bytes explorer: 389,121 bytes a token")


@pytest.mark.parametrize(
    "bad, words",
    [
        (output(image_png="AAAA"), "picture without alt"),
        (output(text_html="<b>bold</b>"), "HTML that is no picture"),
        (
            nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[]),
            "ValueError",
        ),
    ],
)
def test_an_output_that_cannot_be_shown_names_its_cell(bad, words):
    with pytest.raises(ValueError, match=f"halves, cell 1: .*{words}"):
        body(notebook(bad), nowhere, "halves")


def test_words_of_an_output_are_not_markup():
    made = body(notebook(output(text_plain="<bos> & \x1b[31mred")), nowhere, "halves")
    assert "&lt;bos&gt; &amp; red" in made.markup


def test_an_answer_stays_folded_until_it_is_asked_for():
    made = notebook(source="guess = ...", tags=["predict"])
    made.cells.append(notebook(output(text_plain="3.5")).cells[1])
    markup = body(made, nowhere, "halves").markup
    assert markup.index("Guess before") < markup.index("<details class='answer'>")
    assert markup.index("<details class='answer'>") < markup.index("3.5")


def test_a_site_is_replaced_whole_and_nothing_else_is(tmp_path):
    root = small_course(tmp_path / "course", notebook())
    write(root, root / "site")
    (root / "site" / "old.html").write_text("old")
    write(root, root / "site")
    assert not (root / "site" / "old.html").exists() and broken_links(root / "site") == []
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="no site of this course"):
        write(root, other)
    with pytest.raises(ValueError, match="holds the course itself"):
        write(root, root)
    assert (other / "thesis.txt").exists()


def test_a_notebook_that_cannot_be_shown_leaves_the_old_site(tmp_path, capsys):
    root = small_course(tmp_path / "course", notebook())
    write(root, root / "site")
    before = (root / "site" / "index.html").read_text()
    bad = notebook(output(image_png="AAAA"))
    nbformat.write(bad, root / "notebooks" / "00__start_here.ipynb")
    assert main(["--root", str(root), "site"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "notebooks/00__start_here.ipynb, cell 1" in said.err
    assert (root / "site" / "index.html").read_text() == before
    assert sorted(path.name for path in root.iterdir()) == [
        "docs",
        "exercises",
        "notebooks",
        "site",
    ]


def test_a_lesson_without_a_time_is_refused(tmp_path):
    made = notebook()
    made.cells[0].source = "# 00 · Halves"
    with pytest.raises(ValueError, match="00__start_here.ipynb: its first cell should begin"):
        write(small_course(tmp_path / "course", made), tmp_path / "site")


def test_what_is_not_there_is_no_link(tmp_path):
    made = notebook()
    made.cells[0].source += "\n\n[next](01__attention.ipynb), [bill](../exercises/05.ipynb)"
    root = small_course(tmp_path / "course", made)
    write(root, root / "site")
    page = (root / "site" / "notebooks" / "00__start_here.html").read_text()
    assert '<span class="nowhere">next</span>' in page
    assert "in work" in (root / "site" / "index.html").read_text()
    assert broken_links(root / "site") == []
