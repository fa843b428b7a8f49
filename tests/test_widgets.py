"""What holds for every widget: it lives, in any host, for everybody, and ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_checks import failed_requests, noise, strangers, unseen_focus, visit
from playwright.sync_api import Browser, Page
from widget_page import LIVE, faults, open_widgets, page_of, read_out

from course_utils import widgets
from course_utils.widgets import PatchSize
from course_utils.widgets.base import FOLDER, CourseWidget, files

WIDGETS: list[type[CourseWidget]] = [getattr(widgets, name) for name in widgets.__all__]

each_widget = pytest.mark.parametrize("kind", WIDGETS, ids=lambda kind: kind.__name__)


def test_there_are_widgets_to_test() -> None:
    assert PatchSize in WIDGETS
    modules = {path.name for path in FOLDER.glob("*.js")}
    shared = {"link.js", "host.js", "parts.js", "vit.js"}
    assert {kind.module for kind in WIDGETS} == {
        name for name in modules - shared if "widget(" in (FOLDER / name).read_text()
    }


@each_widget
def test_a_widget_shows_its_html_where_widgets_are_shown(
    kind: type[CourseWidget],
) -> None:
    widget = kind()
    data, _ = widget._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert data["text/html"] == widget.html
    assert len(widget.figure().alt) > 40


@each_widget
def test_what_a_page_gets_of_a_widget_is_json(kind: type[CourseWidget]) -> None:
    traits = kind().traits_in_page
    assert traits
    assert json.loads(json.dumps(traits, allow_nan=False)) == traits


@each_widget
def test_a_module_is_small(kind: type[CourseWidget]) -> None:
    assert (FOLDER / kind.module).stat().st_size <= 30_000
    assert set(files(kind.module)) >= {kind.module, "parts.js", "widgets.css"}


def test_a_file_that_nobody_has_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.js"):
        files("nothing.js")


@pytest.mark.browser
@each_widget
@pytest.mark.parametrize(("width", "scheme"), [(1000, "light"), (320, "dark")])
def test_axe_finds_nothing_and_nothing_is_too_wide(
    kind: type[CourseWidget],
    width: int,
    scheme: str,
    browser: Browser,
    tmp_path: Path,
) -> None:
    with open_widgets(browser, tmp_path, kind(), width=width, scheme=scheme) as seen:
        assert read_out(seen.page)
        theme = seen.page.locator(".vit-widget").get_attribute("data-theme")
        assert (theme or "light") == scheme
        assert faults(seen.page) == []


@pytest.mark.browser
@each_widget
def test_the_keyboard_s_place_is_always_seen(
    kind: type[CourseWidget], browser: Browser, tmp_path: Path
) -> None:
    with open_widgets(browser, tmp_path, kind()) as seen:
        assert unseen_focus(seen.page, stops=25) == []


@pytest.mark.browser
@each_widget
def test_two_on_a_page_keep_their_own_state_and_share_their_files(
    kind: type[CourseWidget], browser: Browser, tmp_path: Path
) -> None:
    with open_widgets(browser, tmp_path, kind(), kind()) as seen:
        ids = seen.page.evaluate(
            "[...document.querySelectorAll('.vit-widget [id]')].map(e => e.id)"
        )
        assert len(ids) == len(set(ids))
        names = seen.page.evaluate("""() =>
          [...document.querySelectorAll(".vit-widget")].map((one) =>
            [...one.querySelectorAll("input[type=radio]")].map((i) => i.name))
        """)
        assert not set(names[0]) & set(names[1])
        modules = seen.page.evaluate(
            "globalThis[Symbol.for('vit-course.modules')].size"
        )
        assert modules == len(files(kind.module))


@pytest.mark.browser
@each_widget
def test_paper_shows_the_figure(
    kind: type[CourseWidget], browser: Browser, tmp_path: Path
) -> None:
    with open_widgets(browser, tmp_path, kind()) as seen:
        figure = seen.page.locator(".course-widget-figure")
        live = seen.page.locator(".course-widget-live")
        assert live.is_visible()
        assert not figure.is_visible()
        seen.page.emulate_media(media="print")
        assert figure.is_visible()
        assert not live.is_visible()


@pytest.mark.browser
def test_without_scripts_the_figure_stays(browser: Browser, tmp_path: Path) -> None:
    widget = PatchSize()
    (tmp_path / "page.html").write_text(page_of(widget), encoding="utf-8")
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        picture = page.locator(".course-widget-figure svg")
        assert picture.is_visible()
        assert picture.get_attribute("aria-label") == widget.figure().alt


@pytest.mark.browser
def test_inside_closed_details_a_widget_waits(browser: Browser, tmp_path: Path) -> None:
    page_text = page_of(PatchSize()).replace(
        '<div class="course-widget"', '<details><div class="course-widget"'
    )
    (tmp_path / "page.html").write_text(page_text, encoding="utf-8")
    with browser.new_context() as context:
        seen = visit(context, tmp_path.as_uri(), "page.html")
        seen.page.wait_for_timeout(200)
        assert seen.page.locator(LIVE).count() == 0
        seen.page.evaluate("document.querySelector('details').open = true")
        seen.page.wait_for_selector(LIVE)
        assert "196 patches" in read_out(seen.page)
        assert noise(seen) + strangers(seen) + failed_requests(seen) == []


@pytest.mark.browser
def test_a_widget_far_below_waits_until_the_reader_comes_near(
    browser: Browser, tmp_path: Path
) -> None:
    page_text = page_of(PatchSize()).replace(
        "<main>", '<main><div style="height:5000px"></div>'
    )
    (tmp_path / "page.html").write_text(page_text, encoding="utf-8")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_timeout(300)
        assert page.locator(".course-widget-live").count() == 0
        page.evaluate("scrollTo(0, 5000)")
        page.wait_for_selector(LIVE)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ('{"module":"patch_size.js","traits":{}}', "could not start"),
        ('{"module":"patch_size.js","tra', "could not start"),
        ('{"module":"other.js","traits":{}}', "other.js"),
    ],
    ids=["no traits", "half the JSON", "an unknown module"],
)
def test_a_damaged_state_shows_a_message(
    broken: str, says: str, browser: Browser, tmp_path: Path
) -> None:
    whole = page_of(PatchSize())
    start = whole.index('class="course-widget-state">') + 28
    end = whole.index("</script>", start)
    (tmp_path / "page.html").write_text(whole[:start] + broken + whole[end:], "utf-8")
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        message = page.get_by_role("alert")
        message.wait_for()
        assert says in message.inner_text()


@pytest.mark.browser
def test_a_right_to_left_page_does_not_upset_a_widget(
    browser: Browser, tmp_path: Path
) -> None:
    page_text = page_of(PatchSize()).replace("<html ", '<html dir="rtl" ')
    (tmp_path / "page.html").write_text(page_text, encoding="utf-8")
    with browser.new_context(viewport={"width": 320, "height": 800}) as context:
        seen = visit(context, tmp_path.as_uri(), "page.html")
        seen.page.wait_for_selector(LIVE)
        assert faults(seen.page) == []
        less, more = seen.page.locator(".vit-step").all()
        assert less.bounding_box()["x"] < more.bounding_box()["x"]  # type: ignore[index]


# ----------------------------------------------------------- hosts of other kinds

# A model as Jupyter's front ends have it, with the faults that some of them have.
HOST = """
window.makeModel = (traits, { throws = false } = {}) => {
  const listeners = new Map();
  const fail = (what) => { if (throws) throw new Error(`this host has no ${what}`); };
  return {
    listeners, saved: 0,
    get: (name) => traits[name],
    set(name, value) {
      traits[name] = value;
      for (const listener of [...(listeners.get(`change:${name}`) ?? [])]) {
        listener({}, value);  // arguments differ between hosts
      }
    },
    save_changes() { fail("save_changes"); this.saved += 1; },
    on(name, listener) {
      if (name.includes(" ")) throw new Error("one event a call");
      if (!listeners.has(name)) listeners.set(name, new Set());
      listeners.get(name).add(listener);
    },
    off(name, listener) { fail("off"); listeners.get(name)?.delete(listener); },
    send() { throw new Error("this host has no send"); },
    heard: () => [...listeners.values()].reduce((sum, set) => sum + set.size, 0),
  };
};
window.settle = () => new Promise((done) => setTimeout(done, 150));
"""


@pytest.fixture
def host(
    kind: type[CourseWidget], browser: Browser, tmp_path: Path
) -> Iterator[tuple[Page, list[str]]]:
    """An empty page that loaded a widget's live module, and what it complains of."""
    (tmp_path / "host.html").write_text(
        '<!doctype html><html lang="en"><title>Host</title><body></body></html>'
    )
    widget = kind()
    with browser.new_context() as context:
        page = context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto((tmp_path / "host.html").as_uri())
        page.evaluate(HOST)
        page.evaluate(
            """async ([text, traits]) => {
              const blob = new Blob([text], { type: "text/javascript" });
              window.widget = (await import(URL.createObjectURL(blob))).default;
              window.traits = () => structuredClone(traits);
            }""",
            [widget._esm, widget.traits_in_page],
        )
        yield page, complaints


@pytest.mark.browser
@each_widget
def test_a_widget_lives_and_ends_in_any_host(
    kind: type[CourseWidget], host: tuple[Page, list[str]]
) -> None:
    page, complaints = host
    result = page.evaluate("""async () => {
      const text = (el) => el.querySelector(".vit-readout").textContent;
      const out = {};
      // A host that hands out a signal, and a shadow root.
      const outer = document.body.appendChild(document.createElement("div"));
      const el = document.createElement("div");
      outer.attachShadow({ mode: "open" }).append(el);
      const life = new AbortController();
      const model = makeModel(traits());
      await widget.render({ model, el, signal: life.signal });
      await settle();
      out.shadow = text(el);
      out.styled = getComputedStyle(el.querySelector(".vit-widget")).borderStyle;
      out.heard = model.heard();
      life.abort();
      out.left = [model.heard(), el.childElementCount];
      // One that has none, cannot save, and draws before the element is in the page.
      const late = document.createElement("div");
      const poor = makeModel(traits(), { throws: true });
      const end = await widget.render({ model: poor, el: late });
      document.body.append(late);
      await settle();
      out.late = text(late);
      const button = late.querySelector("button:not(:disabled), input");
      button?.click();
      await settle();
      out.failed = late.querySelectorAll(".vit-failed").length;
      end();
      out.lateLeft = late.childElementCount;
      // The same model, shown again, and twice.
      const [one, two] = [0, 1].map(() => {
        return document.body.appendChild(document.createElement("div"));
      });
      const ends = [one, two].map((at) => widget.render({ model, el: at }));
      await Promise.all(ends);
      await settle();
      out.again = [text(one), text(two)];
      out.heardTwice = model.heard();
      return out;
    }""")
    assert result["shadow"]
    assert result["styled"] == "solid"
    assert result["heard"] > 0
    assert result["left"] == [0, 0]
    assert result["late"] == result["shadow"]
    assert result["failed"] == 0
    assert result["lateLeft"] == 0
    assert result["again"] == [result["shadow"]] * 2
    assert result["heardTwice"] == 2 * result["heard"]
    assert complaints == []


@pytest.mark.browser
@each_widget
def test_a_widget_follows_the_theme_while_it_is_open(
    kind: type[CourseWidget], host: tuple[Page, list[str]]
) -> None:
    page, complaints = host
    themes = page.evaluate("""async () => {
      const el = document.body.appendChild(document.createElement("div"));
      await widget.render({ model: makeModel(traits()), el });
      const seen = [];
      for (const ground of ["white", "rgb(20, 24, 27)", "white"]) {
        document.body.style.background = ground;
        await settle();
        const root = el.querySelector(".vit-widget");
        seen.push([root.dataset.theme ?? "light", getComputedStyle(root).color]);
      }
      return seen;
    }""")
    assert [theme for theme, _ in themes] == ["light", "dark", "light"]
    assert themes[0] == themes[2] != themes[1]
    assert complaints == []


@pytest.mark.browser
@each_widget
def test_memory_is_steady_over_two_hundred_turns(
    kind: type[CourseWidget], host: tuple[Page, list[str]]
) -> None:
    page, complaints = host
    client = page.context.new_cdp_session(page)
    client.send("HeapProfiler.enable")

    def heap(turns: int) -> tuple[float, int]:
        page.evaluate(
            """async (turns) => {
              document.body.replaceChildren();
              const el = document.body.appendChild(document.createElement("div"));
              const end = await widget.render({ model: makeModel(traits()), el });
              for (let i = 0; i < turns; i += 1) {
                const controls = [...el.querySelectorAll("button, input")]
                  .filter((control) => !control.disabled);
                controls[i % controls.length]?.click();
                if (i % 20 === 0) await new Promise((done) => setTimeout(done, 0));
              }
              await settle();
              end();
              el.remove();
            }""",
            turns,
        )
        client.send("HeapProfiler.collectGarbage")
        counts = client.send("Memory.getDOMCounters")
        used = page.evaluate("performance.memory.usedJSHeapSize")
        return used, counts["nodes"]

    heap(20)  # what the first view leaves for good: modules, compiled code
    before = heap(20)
    after = heap(200)
    assert after[0] - before[0] < 2_000_000
    assert after[1] - before[1] < 200
    assert complaints == []
