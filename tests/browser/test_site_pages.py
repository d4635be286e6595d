"""The web pages in Chromium, opened from a disk: two widths, both themes, search, live widgets."""

import random

import pytest
from lab_driver import ROOT
from test_widgets_in_lab import CONTRASTS

from tinymodels import ledger
from tinymodels.families import load
from tinymodels.presets import tiny_v1
from tinymodels.widgets import BytesExplorer, Ladder, explorer
from tools.site.chapters import STEMS
from tools.site.write import write

PAGES = [
    "index.html",
    "docs/glossary.html",
    "README.zh-CN.html",
    "exercises/01__attention.html",
] + [f"notebooks/{stem}.html" for stem in STEMS if (ROOT / "notebooks" / f"{stem}.ipynb").exists()]
MODELS = {
    "tiny V1, the model of this course": tiny_v1(),
    "DeepSeek 67B (V1)": "deepseek-67b",
    "Llama 3.1 8B (GQA)": load(ROOT / "tests/configs/llama-3.1-8b.json"),
    "Falcon 7B (MQA)": load(ROOT / "tests/configs/falcon-7b.json"),
}
# What a learner types, and a page that must be among the first three places.
QUERIES = {
    "what is a latent": "notebooks/06__mla.html",
    "multi-head attention": "docs/glossary.html#term-mha",
    "how many bytes per token": "notebooks/01__attention.html",
    "mixture of experts": "notebooks/04__ffn_and_experts.html",
    "quantization": "docs/glossary.html#term-quantise",
    "4-bit rounding": "notebooks/11__fp4.html",
    "positional encoding": "docs/glossary.html#term-rope",
    "GPU memory not enough": "notebooks/05__the_bill.html",
    "prefix cache hit rate": "notebooks/12__serving.html",
    "why does the window stay FP8": "notebooks/11__fp4.html",
    "topk ties": "exercises/07__sparse_attention.html",
    "speculative decoding": "docs/glossary.html#term-speculative-decoding",
    "latnet": "notebooks/06__mla.html",
    "sinks": "notebooks/08__groups.html",
    "890": "notebooks/11__fp4.html",
    "3514.25": "notebooks/08__groups.html",
    "bounded replay": "notebooks/09__ced.html",
    "skip connection": "notebooks/03__residual_stream.html",
    "logit lens": "notebooks/02__layers.html",
    "index_scores": "notebooks/07__sparse_attention.html",
    "什么是残差流": "notebooks/03__residual_stream.html",
    "为什么需要缓存": "notebooks/01__attention.html",
    "显存不够怎么办": "notebooks/05__the_bill.html",
    "混合专家": "docs/glossary.html#term-moe",
    "位置编码": "docs/glossary.html#term-rope",
    "前缀缓存 命中率": "notebooks/12__serving.html",
    "滑动窗口": "docs/glossary.html#term-sliding-window",
    "多头潜在注意力": "notebooks/06__mla.html",
    "怎么安装": "README.zh-CN.html",
    "量化": "docs/glossary.html#term-quantise",
}
# (the language of the page, what is typed) -> the place that must be the very first.
FIRST = {
    ("en", "install"): "README.html#",
    ("en", "how to install"): "README.html#",
    ("zh-CN", "install"): "README.zh-CN.html#",
    ("en", "conda"): "README.html#with-conda",
    ("en", "conda install"): "README.html#with-conda",
    ("zh-CN", "conda"): "README.zh-CN.html#用-conda",
    ("en", "怎么安装"): "README.zh-CN.html#",
    ("en", "syllabus"): "docs/syllabi.html#",
    ("en", "course plan"): "docs/syllabi.html#",
    ("zh-CN", "大纲"): "docs/syllabi.html#",
}


def pale(node):
    """Words whose contrast with the ground behind them is under 4.5."""
    return [found for found in node.evaluate(CONTRASTS) if found[1] < 4.5]


# What sticks out of the window to the right, outside of what can be scrolled on its own.
WIDE = """() => document.documentElement.scrollWidth > innerWidth
  ? [...document.querySelectorAll("main *")]
      .filter((node) => node.getBoundingClientRect().right > innerWidth + 1
        && !node.closest("pre, .scroll"))
      .map((node) => node.outerHTML.slice(0, 80)) : []"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "site"
    write(ROOT, folder)
    return folder


def show(new_page, site, path, width=1400, dark=False):
    page = new_page(width)
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.goto((site / path).as_uri())
    return page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_legible_at_both_widths(new_page, site, pictures, path, dark):
    page = show(new_page, site, path, dark=dark)
    for width in (1400, 400):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(200)
        assert page.evaluate(WIDE) == [], width
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), width
        assert pale(page.locator("body")) == [], width
        name = f"{path.replace('/', '_')}_{width}_{'dark' if dark else 'light'}.png"
        page.screenshot(path=pictures / name)
    broken = "() => [...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)"
    assert page.evaluate(broken) == []
    assert page.complaints == []
    print(f"\npictures in {pictures}")


def test_the_checks_find_what_is_wrong(new_page, site):
    page = show(new_page, site, "index.html", width=400)
    page.evaluate("""() => {
      document.querySelector("main p").style.color = "#aaaaaa";
      document.querySelector("main h1").style.width = "900px";
    }""")
    assert len(pale(page.locator("body"))) == 1 and len(page.evaluate(WIDE)) >= 1


def test_light_and_dark_by_keyboard_and_kept(new_page, site):
    page = show(new_page, site, "index.html")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Dark").press("Enter")
    assert page.evaluate(ground) == "rgb(17, 17, 17)"
    page.reload()
    assert page.evaluate(ground) == "rgb(17, 17, 17)"
    assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"


def test_search_by_keyboard_leads_to_the_place(new_page, site):
    page = show(new_page, site, "notebooks/00__start_here.html")
    page.keyboard.press("/")
    page.keyboard.type("square root dim")
    page.locator("#found li").first.wait_for()
    assert page.locator("#found mark").count() > 0
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_url("**/notebooks/01__attention.html#*")
    page.get_by_label("Search").fill("xyzzy plugh")
    page.get_by_text("Nothing has these words.").wait_for()
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    page.get_by_label("Search").fill("<img src=x onerror=alert(1)>")
    page.wait_for_timeout(300)
    assert page.complaints == []


@pytest.mark.parametrize("typed", ["稀疏注意力", "sparse attention", "屋顶线模型"])
def test_what_is_met_is_marked_whole(new_page, site, typed):
    page = show(new_page, site, "README.zh-CN.html")
    page.get_by_label("Search").fill(typed)
    page.locator("#found li").first.wait_for()
    marked = [words.lower() for words in page.locator("#found mark").all_inner_texts()]
    assert set(typed.split()) <= set(marked)
    for words in page.locator("#found li p").all_inner_texts():
        assert not words.endswith(" …") or len(words) < 180, words


@pytest.mark.parametrize("typed, wanted", QUERIES.items())
def test_a_learners_question_finds_its_place(searched, typed, wanted):
    found = searched(typed)["places"][:3]
    assert any(place.startswith(wanted) for place in found), found


@pytest.mark.parametrize("asked, wanted", FIRST.items())
def test_what_comes_first_is_in_the_readers_language(searched, asked, wanted):
    language, typed = asked
    assert searched(typed, language)["places"][0] == wanted


def test_the_search_prefers_the_language_of_its_page(new_page, site):
    for path, first in (("index.html", "README.html"), ("README.zh-CN.html", "README.zh-CN.html")):
        page = show(new_page, site, path)
        page.get_by_label("Search").fill("conda")
        page.locator("#found li").first.wait_for()
        assert f"/{first}#" in page.locator("#found a").first.evaluate("(link) => link.href")


def test_what_the_search_says_when_it_is_not_sure(searched):
    assert searched("latnet")["heard"] == [["latnet", "latent"]]
    assert not searched("absorb tent map chromatic")["whole"]
    assert searched("xyzzy plugh") == {"places": [], "whole": False, "heard": []}
    assert searched("the of and")["places"] is not None  # words of no weight are words all the same
    for n in range(1, 9):  # while it is typed
        assert any("quantise" in place for place in searched("quantise"[: max(n, 4)])["places"])


@pytest.fixture(scope="module")
def searched(new_page, site):
    page = show(new_page, site, "index.html")
    page.get_by_label("Search").fill("row")
    page.locator("#found li").first.wait_for()
    script = """([typed, language]) => {
      const find = (window.courseFinds ??= {})[language] ??= finder(courseIndex, language);
      const { hits, whole, heard } = find(typed);
      return { places: hits.map(({ entry }) => `${entry.u}#${entry.a}`), whole, heard };
    }"""
    return lambda typed, language="en": page.evaluate(script, [typed, language])


def test_pictures_follow_the_theme(new_page, site):
    page = show(new_page, site, "notebooks/07__sparse_attention.html", dark=True)
    shown = """() => [...document.images].filter((i) => getComputedStyle(i).display !== "none")
                .map((i) => i.className)"""
    assert set(page.evaluate(shown)) == {"by-night"}
    page.get_by_role("button", name="Dark").click()
    assert set(page.evaluate(shown)) == {"by-day"}


@pytest.mark.parametrize("path", ["index.html", "README.html"] + [p for p in PAGES if "books" in p])
def test_letters_in_pictures_keep_their_size_on_a_phone(new_page, site, path):
    page = show(new_page, site, path, width=400)
    page.locator("figure.live[data-alive]").evaluate_all("(all) => all.map((one) => one.remove())")
    shares = """() => [...document.querySelectorAll("main img.by-day")]
      .map((i) => [i.getBoundingClientRect().width / i.getAttribute("width"), i.src])"""
    small = [found for found in page.evaluate(shares) if 0 < found[0] < 0.7]
    assert small == []
    for picture in page.locator(".wide:visible").all():
        assert picture.get_by_text("move it sideways").is_visible()
        assert picture.locator(".scroll").evaluate("(it) => it.scrollWidth > it.clientWidth")
    page.set_viewport_size({"width": 1400, "height": 1000})
    assert page.locator(".sideways:visible").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_paper_has_all_pictures_and_answers(new_page, site, dark):
    page = show(new_page, site, "notebooks/07__sparse_attention.html", dark=dark)
    count = page.locator("main img.by-day").count()
    assert count > 5
    printed = page.pdf()
    assert printed.count(b"/Subtype /Image") >= count
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark" if dark else "light")
    seen = """() => [...document.querySelectorAll("main img")]
      .filter((i) => i.getBoundingClientRect().height > 20 && i.naturalWidth)
      .map((i) => i.className)"""
    assert page.evaluate(seen) == ["by-day"] * count
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor").startswith(
        "rgb(255"
    )
    assert pale(page.locator("main")) == []
    assert page.locator("main details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("main details[open]").count() == 0


def test_the_live_numbers_are_those_of_tinymodels(new_page, site):
    page = show(new_page, site, "notebooks/01__attention.html")
    for name, config in MODELS.items():
        told = page.evaluate(
            """([model, context]) => {
              const start = { ...kvcLive.explorer.state.start, model, context };
              return kvcLive.explorer.look(start, "model").view;
            }""",
            [name, 2**17],
        )
        assert told["number"] == f"{ledger.rate(config):,}"
        held = ledger.exact(config, 2**17)["global"]
        assert f"{held:,} bytes" in told["lines"][1], name


def test_the_ladder_moves_without_a_kernel(new_page, site):
    page = show(new_page, site, "index.html")
    widget = page.get_by_role("region", name="The ladder: from 389,120 bytes a token to 890")
    for at, name in enumerate(["GQA", "latent", "FP8", "groups", "sharing", "FP4"], 1):
        box = widget.get_by_label(name, exact=True)
        if not box.is_checked():
            box.press("Space")
        view = Ladder(at).view
        assert widget.locator(".kvc-number").inner_text() == view.number
        assert widget.locator(".kvc-lines p").all_inner_texts() == list(view.lines)
    widget.get_by_role("button", name="Reset").press("Enter")
    assert widget.locator(".kvc-number").inner_text() == "389,120"
    assert page.complaints == []


def test_the_explorer_says_what_python_says(new_page, site):
    page = show(new_page, site, "notebooks/01__attention.html")
    widget = BytesExplorer()
    draw = random.Random(7)
    asked = []
    for control in widget._controls:  # each control over its whole range, then at random
        for value in control.values:
            asked.append(({**widget.start, control.name: value}, control.name))
    for _ in range(1500):
        settings = {c.name: draw.choice(c.values) for c in widget._controls}
        asked.append((settings, draw.choice([*settings, "reset"])))
    told = page.evaluate(
        "asked => asked.map(([settings, changed]) => kvcLive.explorer.look(settings, changed))",
        [list(pair) for pair in asked],
    )
    for (settings, changed), answer in zip(asked, told):
        settled = widget.settle(settings, changed)
        view = explorer.look(explorer._shape(settled))
        assert answer["settings"] == settled
        for name in ("number", "unit", "alt", "say"):
            assert answer["view"][name] == getattr(view, name), settings
        assert tuple(answer["view"]["lines"]) == view.lines
        for theirs, ours in zip(answer["view"]["chart"]["bars"], view.chart["bars"], strict=True):
            assert theirs == {**ours, "end": pytest.approx(ours["end"], abs=1e-12)}
        assert answer["view"]["chart"]["ticks"] == view.chart["ticks"]


def test_the_explorer_moves_by_keyboard(new_page, site):
    page = show(new_page, site, "notebooks/01__attention.html")
    widget = page.get_by_role("region", name="Bytes explorer")
    widget.get_by_label("layers", exact=True).press("Home")
    expected = BytesExplorer()
    expected.set(layers=1)
    assert widget.locator(".kvc-number").inner_text() == expected.view.number == "4,096"
    assert widget.get_by_role("img").get_attribute("aria-label") == expected.view.alt
    widget.get_by_label("model", exact=True).select_option(label="Falcon 7B (MQA)")
    assert widget.locator(".kvc-number").inner_text() == f"{2 * 32 * 64 * 2:,}"
    assert page.complaints == []


def test_without_scripts_the_still_pictures_are_there(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "notebooks/01__attention.html").as_uri())
    assert page.locator("figure.live img:visible").count() == 1
    context.close()
