"""The web pages of the whole course: links, pictures, words, the search, what is refused."""

import io
import json
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image
from site_pages import broken_links, read_pages

from tinymodels.families import load
from tinymodels.ledger import rate
from tinymodels.presets import tiny_v1
from tinymodels.widgets import BytesExplorer, Ladder, plot
from tools.__main__ import main
from tools.site import chapters as chapter_list
from tools.site.cells import body
from tools.site.dark import named, size, turned, twin
from tools.site.glossary import names, rows
from tools.site.live import live
from tools.site.search import ANSWERED_BY
from tools.site.write import DOCUMENTS, write

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
CONFIGS = {
    "tiny V1, the model of this course": tiny_v1(),
    "DeepSeek 67B (V1)": "deepseek-67b",
    "Llama 3.1 8B (GQA)": load(ROOT / "tests/configs/llama-3.1-8b.json"),
    "Qwen2 7B (GQA)": load(ROOT / "tests/configs/qwen2-7b.json"),
    "Falcon 7B (MQA)": load(ROOT / "tests/configs/falcon-7b.json"),
}
HEAD = "# 00 · Halves\n\n*20 minutes.* Objectives\n\n- halve\n\n> **The number: 7.**"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "site"
    write(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return read_pages(site)


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
    for name in ("docs/bytes_per_token.png", "docs/glossary.md", "README.md", "README.zh-CN.md"):
        (root / name).write_bytes((ROOT / name).read_bytes())
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


def test_every_lesson_and_exercise_has_a_page(site, pages):
    for folder in ("notebooks", "exercises"):
        for path in (ROOT / folder).glob("*.ipynb"):
            assert f"{folder}/{path.stem}.html" in pages
    front = pages["index.html"]
    assert {f"notebooks/{stem}.html" for stem in LESSONS} <= set(front.links)
    assert list(chapter_list.STEMS) == sorted(chapter_list.STEMS) and len(LESSONS) >= 14
    assert [stem[:2] for stem in chapter_list.STEMS] == list(chapter_list.STANDS_ON)


def test_every_picture_has_words_and_a_size(site, pages):
    count = 0
    for name, page in pages.items():
        days = [picture for picture in page.pictures if picture["class"] == "by-day"]
        nights = [picture for picture in page.pictures if picture["class"] == "by-night"]
        assert len(days) + len(nights) == len(page.pictures)
        for day, night in zip(days, nights, strict=True):
            count += name.startswith("notebooks/") or name == "index.html"
            assert len(day.get("alt", "")) > 10, (name, day)
            assert "loading" not in day | night  # such a picture is missing on paper
            assert int(day["width"]) > 0 and int(day["height"]) > 0
            assert night == {**day, "class": "by-night", "src": named(day["src"])}
    stored = [
        output
        for stem in LESSONS
        for cell in nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", 4).cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    assert count == len(stored) + 2  # and the two of the front page


def test_documents_are_pages_in_their_language(site, pages):
    for name in DOCUMENTS:
        path = name.removesuffix(".md") + ".html"
        assert path in pages["index.html"].links
        text = (site / path).read_text(encoding="utf-8")
        assert f'<html lang="{"zh-CN" if "zh-CN" in name else "en"}"' in text
    front = (site / "index.html").read_text(encoding="utf-8")
    assert '<a class="plain" href="README.zh-CN.html" lang="zh-CN"' in front
    assert "../README.zh-CN.html" in pages["docs/glossary.html"].links
    assert "docs/glossary.html" in pages["README.zh-CN.html"].links


def test_every_page_says_where_it_stands(site):
    stands = chapter_list.STANDS_ON
    for stem in LESSONS:
        lesson = (site / f"notebooks/{stem}.html").read_text(encoding="utf-8")
        place = lesson[lesson.index('<nav class="place"') : lesson.index("<h1")]
        below, _, above = place.partition("Leads to")
        assert re.findall(r'href="(\d\d)__', below) == list(stands[stem[:2]])
        leads = [other for other, needed in stands.items() if stem[:2] in needed]
        assert re.findall(r'href="(\d\d)__', above) == leads and (leads or stem[:2] >= "13")
        exercises = (site / f"exercises/{stem}.html").read_text(encoding="utf-8")
        assert f'Stands on <a href="../notebooks/{stem}.html"' in exercises
        head = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", 4).cells[0].source
        back = {digits for digits in re.findall(r"\]\((\d\d)__\w+\.ipynb", head)}
        assert back <= {*stands[stem[:2]], *leads}, stem
    assert all(needed < chapter for chapter, several in stands.items() for needed in several)
    for name in DOCUMENTS:
        page = (site / name).with_suffix(".html").read_text(encoding="utf-8")
        assert "Beside the chapters of <a href=" in page


def test_a_term_of_the_glossary_has_a_place(site):
    text = (site / "docs/glossary.html").read_text(encoding="utf-8")
    places = re.findall(r'<tr role="row" id="(term-[^"]+)">', text)
    assert len(places) == len(rows((ROOT / "docs/glossary.md").read_text(encoding="utf-8")))
    assert "term-kv-cache" in places and '<td role="cell" lang="zh-CN">KV 缓存</td>' in text


def test_headings_ids_and_scripts_are_in_order(site, pages):
    for name, page in pages.items():
        assert page.headings.count(1) == 1, name
        assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:])), name
        assert len(page.ids) == len(set(page.ids)), name


def test_nothing_comes_from_elsewhere(site):
    for path in site.rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"<(script|link|img)[^>]*https?:", text), path
            assert not re.search(r"\bfetch\(|XMLHttpRequest|@import|url\(\s*['\"]?http", text), path


def test_the_search_knows_every_page(site, pages):
    text = (site / "search.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("window.courseIndex = ").rstrip().rstrip(";"))
    entries = index["entries"]
    assert all(term[0] in pages["docs/glossary.html"].ids for term in index["terms"])
    answers = {typed: also for typed, _, *also in index["also"] if also}
    assert answers.keys() == ANSWERED_BY.keys()
    assert {page for also in answers.values() for page in also} <= set(pages)
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


def test_the_live_numbers_are_the_ledgers(site):
    text = (site / "live/ladder.js").read_text(encoding="utf-8")
    state = json.loads(re.search(r"^state: (.*),$", text, re.M)[1])
    told = {
        view["view"]["unit"].split(" · ")[1].split(",")[0]: view["view"]["number"]
        for view in state["views"].values()
    }
    models = {
        "V1": "deepseek-67b",
        "V2": "deepseek-v2",
        "V3.2": "deepseek-v3.2",
        "V4-Flash": "deepseek-v4-flash",
        "V4.1-Flash": "deepseek-v4.1-flash",
    }
    assert len(told) == 7
    for short, name in models.items():
        assert told[short] == plot.exact(rate(name)), short
    text = (site / "live/explorer.js").read_text(encoding="utf-8")
    shapes = json.loads(re.search(r"^return looker\((.*)\);$", text, re.M)[1])["presets"]
    for words, config in CONFIGS.items():
        shape = shapes[words]
        bits = 2 * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * shape["bits"]
        assert bits == 8 * rate(config), words


# ---------------------------------------------------------------- single pieces


@pytest.mark.parametrize("one", [*plot.PALETTE, *plot.LIGHT.values(), "#808080"])
def test_two_colours_keep_their_contrast_in_the_dark(one):
    def twins(*colours):
        rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours])
        return ["#" + bytes(row).hex() for row in np.round(turned(rgb)).astype(np.uint8)]

    white, ink = twins("#ffffff", plot.LIGHT["ink"])
    assert white == plot.DARK["ground"]  # a picture has no edge on the page
    (dark,) = twins(one)
    floor = 0.95 if one != plot.BLACK else 0.85  # there is nothing brighter than white
    for other, theirs in (("#ffffff", white), (plot.LIGHT["ink"], ink)):
        now, then = plot.contrast(dark, theirs), plot.contrast(one, other)
        assert floor * then <= now <= 1.06 * then, (one, other)


def test_a_twin_is_the_same_picture_in_other_colours():
    fig, ax = plot.figure(3.1, 1.7)
    ax.plot([3, 1, 2], color=plot.ORANGE)
    day = plot.png(fig)
    night = twin(day)
    one, other = (Image.open(io.BytesIO(png)) for png in (day, night))
    assert one.size == other.size == size(day) == size(night)
    assert (np.asarray(one.convert("L")) == 255).mean() > 0.5
    corner = other.convert("RGB").getpixel((0, 0))
    assert "#" + bytes(corner).hex() == plot.DARK["ground"]
    pairs = np.concatenate([np.asarray(p.convert("RGB")) for p in (one, other)], axis=2)
    assert len(np.unique(pairs.reshape(-1, 6), axis=0)) > 20
    assert len(np.unique(pairs[..., 3:].reshape(-1, 3), axis=0)) > 20
    grey = Image.new("RGB", (7, 5), (128, 128, 128))
    out = io.BytesIO()
    grey.save(out, format="png")
    assert Image.open(io.BytesIO(twin(out.getvalue()))).size == (7, 5)


def test_all_names_of_a_term():
    assert names("MHA; multi-head attention", "多头注意力（MHA）") == [
        "MHA",
        "multi-head attention",
        "多头注意力",
    ]
    assert {"near memory, far memory", "near", "近记忆", "远记忆"} <= set(
        names("near memory, far memory; near; far", "近记忆、远记忆")
    )
    assert names("bias (of a router)", "偏置") == ["bias", "偏置"]
    assert names("copies (of the stream)", "副本（残差流）") == ["copies", "副本"]
    assert names("KV cache", "KV 缓存") == ["KV cache", "KV 缓存", "缓存"]
    assert names("feed-forward network (FFN)", "前馈网络（FFN）")[:2] == [
        "feed-forward network",
        "FFN",
    ]


@pytest.mark.parametrize(
    "before, source, after, kept",
    [
        ("Bars.\n\nThe chosen one is dark.", "draw()", "Next.", True),
        ("Bars.", "draw(title='wrong ones (dark)')", "Next.", True),
        ("Bars.", "draw()", "The darker cells are read.\n\nNext.", True),
        ("A dark day.\n\nBars.", "dark = draw('darkness')", "Next.\n\nA dark end.", False),
        ("Bars.", "%timeit draw()", "Next.", False),
    ],
)
def test_a_picture_whose_words_say_dark_keeps_its_lightness(before, source, after, kept):
    cells = [nbformat.v4.new_markdown_cell(HEAD + "\n\n" + before)]
    made = notebook(picture_output(), source=source)
    made.cells = [*cells, made.cells[1], nbformat.v4.new_markdown_cell(after)]
    told = body(made, nowhere, "halves")
    assert told.as_drawn == (set(told.pictures) if kept else set())


def test_the_dark_theme_shows_it_as_drawn(tmp_path):
    for words, same in (("The chosen one is dark.", True), ("The chosen one is blue.", False)):
        made = notebook(picture_output())
        made.cells[0].source = f"{HEAD}\n\n{words}"
        (name,) = body(made, nowhere, "halves").pictures
        root = small_course(tmp_path / str(same), made)
        write(root, root / "site")
        day, night = (root / "site" / "pictures" / n for n in (name, named(name)))
        assert (day.read_bytes() == night.read_bytes()) == same


def test_a_ledger_says_that_its_bars_are_logarithmic(site):
    for stem in LESSONS:
        text = (site / "notebooks" / f"{stem}.html").read_text(encoding="utf-8")
        figures = re.findall(r"<figure>.*?</figure>", text, re.S)
        ledgers = [figure for figure in figures if 'alt="The ledger on a log' in figure]
        told = [figure for figure in figures if "The bars are on a logarithmic axis." in figure]
        assert told == ledgers and ledgers, stem


def picture_output():
    """A picture as a lesson shows one."""
    fig, ax = plot.figure(3.1, 1.7)
    ax.bar([1, 2, 3], [3, 5, 7])
    data, _ = plot.bundle(fig, "Three bars.")
    return nbformat.v4.new_output("display_data", data=data)


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
        "README.md",
        "README.zh-CN.md",
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
