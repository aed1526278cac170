"""Tests the report in a browser: by mouse and keyboard, on a phone, in the dark, in print."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from search.record.folder import Caution
from search.reporting.charts import MOST_CLOSER
from search.reporting.content import MlflowPages, Report, TrialRow
from search.reporting.page import MOST_WARNINGS
from search.reporting.page import page as page_of
from tests.integration.browser import PAINTED, chromium, opened
from tests.search.learning.landscapes import RATE
from tests.search.reporting.small_mask_reports import mask_report
from tests.search.reporting.small_reports import whole_report

pytestmark = pytest.mark.integration

MOST_BYTES, MOST_SECONDS = 5_000_000, 2.0
TRIALS, EPOCHS = 2_000, 20
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def whole() -> Report:
    return whole_report()


@pytest.fixture(scope="module")
def file(whole: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("report") / "report.html"
    found.write_text(page_of(whole))
    return found


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    with opened(browser, file) as found:
        yield found


def end_of(page: Page, plot: str, trial: int) -> tuple[float, float]:
    """Return where on the screen the last mark of a trial is."""
    page.locator(plot).first.scroll_into_view_if_needed()
    x, y = page.evaluate(
        """([plot, trial]) => {
            const svg = document.querySelector(`${plot} svg`), box = svg.getBoundingClientRect();
            const trials = path => path.dataset.ts.split(" ");
            const layers = [...svg.querySelectorAll("[data-ts]")];
            const layer = layers.find(path => trials(path).includes(trial));
            const at = trials(layer).indexOf(trial);
            const [x, y] = layer.getAttribute("d").match(/\\d+ \\d+/g)[at].split(" ");
            return [box.left + x / 2000 * box.width, box.top + y / 2000 * box.height];
        }""",
        [plot, str(trial)],
    )
    return float(x), float(y)


def best_of(report: Report) -> TrialRow:
    assert report.answer.best is not None
    return report.trials[report.answer.best]


def test_a_trial_under_the_mouse_is_named(page: Page, whole: Report) -> None:
    best = best_of(whole)
    page.mouse.move(*end_of(page, ".curves", best.id))
    expect(page.locator("#tip")).to_contain_text(f"trial {best.id}, the best: finished")
    page.mouse.move(5, 5)
    expect(page.locator("#tip")).to_be_hidden()


def middle_of(page: Page, path: str) -> tuple[float, float]:
    """Return where on the screen the middle of a line's last segment is."""
    page.locator(path).first.scroll_into_view_if_needed()
    x, y = page.evaluate(
        """path => {
            const line = document.querySelector(path), box = line.closest("svg").getBoundingClientRect();
            const numbers = line.getAttribute("d").match(/-?\\d+/g).map(Number), steps = numbers.slice(2);
            let [x, y] = numbers;
            for (let at = 0; at + 3 < steps.length; at += 2) { x += steps[at]; y += steps[at + 1]; }
            x += steps.at(-2) / 2; y += steps.at(-1) / 2;
            return [box.left + x / 2000 * box.width, box.top + y / 2000 * box.height];
        }""",
        path,
    )
    return float(x), float(y)


def test_a_line_is_named_between_its_marks(page: Page, whole: Report) -> None:
    best = best_of(whole)
    page.mouse.move(*middle_of(page, f".parallel [data-t='{best.id}']"))
    expect(page.locator("#tip")).to_contain_text(f"trial {best.id}, the best: finished")


def test_the_bar_of_a_run_that_trains_a_trial_again_is_named_apart(page: Page, whole: Report) -> None:
    best = best_of(whole)
    page.mouse.move(*middle_of(page, ".workers .again"))
    expect(page.locator("#tip")).to_have_text(f"trial {best.id} again, with seed 1: 0.8700 after 9 epochs")
    bar = page.locator(".workers .again").get_attribute("d")
    assert [each.get_attribute("d") for each in page.locator(".workers path.hot").all()] == [bar]


def test_the_keyboard_goes_from_attempt_to_attempt(page: Page, whole: Report) -> None:
    page.locator(".workers").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#said")).to_have_text(
        f"trial {best_of(whole).id} again, with seed 1: 0.8700 after 9 epochs"
    )
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#said")).to_have_text("trial 23, attempt 2: machine taken back")


@pytest.mark.smoke("the report in a browser")
def test_a_click_opens_the_card_of_the_trial(page: Page, whole: Report) -> None:
    best = best_of(whole)
    page.mouse.click(*end_of(page, ".curves", best.id))
    card = page.get_by_role("dialog")
    expect(card.get_by_role("heading", name=f"Trial {best.id}")).to_be_visible()
    expect(card).to_contain_text(f"{best.score:.4g}")
    for path, value in best.values.items():
        row = card.get_by_role("row").filter(has=page.get_by_role("rowheader", name=path, exact=True))
        expect(row).to_contain_text(f"{value:.4g}" if isinstance(value, float) else str(value))
    assert page.locator(".belief path.hot").count() >= 2  # it is marked in the other plots, too
    expect(page.locator(f"tr[data-row='{best.id}']")).to_have_class("chosen")


def test_a_card_leads_to_the_next_trial_and_closes(page: Page) -> None:
    page.locator("#table").get_by_role("button", name="trial 3", exact=True).click()
    card = page.get_by_role("dialog")
    card.get_by_role("button", name="The next trial").click()
    expect(card.get_by_role("heading", name="Trial 4")).to_be_visible()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    assert page.locator("path.hot").count() == 0


def test_the_keyboard_goes_from_trial_to_trial_and_opens_one(page: Page) -> None:
    page.locator(".curves").first.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        said.append(page.locator("#said").text_content())
    assert said[0] == said[2] != said[1]
    page.keyboard.press("Enter")
    number = str(said[0]).split()[1].rstrip(":,")
    heading = page.get_by_role("dialog").get_by_role("heading", name=f"Trial {number}")
    expect(heading).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".curves").first).to_be_focused()


def test_the_legend_hides_trials_and_shows_them_again(page: Page) -> None:
    stopped = page.locator(".curves path.stopped:visible")
    before = stopped.count()
    button = page.get_by_role("button", name="stopped early")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    assert (before > 0, stopped.count()) == (True, 0)
    button.click()
    assert stopped.count() == before


def test_the_documented_recipe_and_repeats_follow_no_other_button(page: Page, whole: Report) -> None:
    own = next(each for each in whole.trials if each.own)
    page.get_by_role("button", name="finished", exact=True).click()
    shown = "path[data-t]:not(.out)"
    assert page.locator(".curves path.finished:not(.own):visible").count() == 0
    assert page.locator(f".curves {shown}[data-t='{own.id}']").count() == 1
    assert page.locator(".workers .again:not(.out)").count() == 1
    assert page.locator(".parallel path.finished:not(.own):not(.out)").count() == 0
    page.get_by_role("button", name="documented recipe").click()
    assert page.locator(f".curves {shown}[data-t='{own.id}']").count() == 0


def test_a_finger_that_scrolls_over_an_axis_keeps_no_trials(page: Page) -> None:
    axis = page.locator(".parallel path.axis").last
    axis.scroll_into_view_if_needed()
    box = page.locator(".parallel .frame").bounding_box()
    height = axis.bounding_box()
    assert box is not None
    assert height is not None
    for kind, across in (("pointerdown", 0.2), ("pointercancel", 0.2), ("pointerup", 0.8)):
        at = {"clientX": box["x"] + across * box["width"], "clientY": height["y"], "bubbles": True}
        page.locator(".parallel .frame").dispatch_event(kind, {**at, "button": 0})
    expect(page.locator("[data-kept]").first).to_be_empty()
    assert page.locator(".parallel path.band").count() == 0


def test_a_drag_along_an_axis_keeps_the_trials_with_values_there(page: Page, whole: Report) -> None:
    plot = page.locator(".parallel .frame")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    last = page.locator(".parallel path.axis").last.get_attribute("d")
    assert last is not None
    height = box["y"] + int(last.split("l")[0].split()[1]) / 2000 * box["height"]
    page.mouse.move(box["x"] + 0.5 * box["width"], height)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 5, height)
    page.mouse.up()
    better = [each for each in whole.trials if each.place is not None and each.place >= 50.0]
    said = page.locator("[data-kept]").first
    expect(said).to_have_text(f"{len(better)} of {len(whole.trials)} trials are kept")
    expect(page.locator("#table tbody tr:visible")).to_have_count(len(better))
    assert page.locator(".parallel path[data-t]:not(.out)").count() == len(better)
    expect(page.get_by_role("dialog")).to_be_hidden()  # a drag is no click
    page.mouse.click(box["x"] + 0.3 * box["width"], height)
    expect(said).to_have_text("all trials are shown")


def test_the_table_is_filtered_and_sorted(page: Page, whole: Report) -> None:
    asked = page.locator("#trials").get_by_label("Show trials that have")
    asked.fill("diverged")
    diverged = [each for each in whole.trials if each.state == "diverged"]
    expect(page.locator("#table tbody tr:visible")).to_have_count(len(diverged))
    asked.fill("state=stopped trial<10")
    stopped = [each for each in whole.trials if each.state == "stopped" and each.id < 10]
    assert stopped
    expect(page.locator("#table tbody tr:visible")).to_have_count(len(stopped))
    asked.fill("")
    page.get_by_role("button", name="epochs", exact=True).click()
    epochs = [int(each) for each in page.locator("#table tbody td:nth-child(3)").all_inner_texts()]
    assert epochs == sorted(epochs, reverse=True)


@pytest.mark.parametrize("part", ["#parallel", "#trials"])
def test_the_keyboard_keeps_trials_by_what_they_have(page: Page, whole: Report, part: str) -> None:
    page.locator(part).get_by_label("Show trials that have").focus()
    page.keyboard.type(f"finished LR>0.1 {whole.search.objective}>=0.85")
    kept = {
        each.id
        for each in whole.trials
        if each.state == "finished" and float(str(each.values[RATE])) > 0.1 and (each.score or 0.0) >= 0.85
    }
    assert 0 < len(kept) < sum(each.state == "finished" for each in whole.trials)
    expect(page.get_by_role("status").filter(has_text=f"{len(kept)} of {len(whole.trials)}")).to_be_visible()
    shown = page.locator(".parallel path[data-t]:not(.out)").all()
    assert {int(each.get_attribute("data-t") or -1) for each in shown} == kept
    expect(page.locator("#table tbody tr:visible")).to_have_count(len(kept))


def test_the_table_sorts_by_a_value_with_the_keyboard_and_rows_without_one_come_last(page: Page) -> None:
    button = page.locator("#table thead").get_by_role("button", name=RATE)
    column = button.evaluate("each => each.closest('th').cellIndex + 1")
    for state in ("descending", "ascending"):
        button.focus()
        page.keyboard.press("Enter")
        expect(button.locator("xpath=..")).to_have_attribute("aria-sort", state)
        texts = page.locator(f"#table tbody td:nth-child({column})").all_inner_texts()
        values = [float(each) for each in texts if each]
        assert values == sorted(values, reverse=state == "descending")
        assert len(set(values)) > 2
        assert all(texts[: len(values)])
    assert page.locator("#table th[aria-sort]").count() == 1


def test_a_field_is_found_by_its_section_where_its_name_is_kind(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        found = page.evaluate(
            """() => {
                data.paths.push("optimizer.kind");
                for (const [t, trial] of Object.entries(data.trials)) trial[5].push(+t % 3 ? "sgd" : "adamw");
                asked = "optimizer=adamw";
                return [...keptTrials()];
            }"""
        )
    assert found
    assert all(each % 3 == 0 for each in found)


def test_the_card_of_a_trial_leads_to_its_run_in_mlflow(
    browser: Browser, whole: Report, tmp_path: Path
) -> None:
    trial = "http://tracker/#/experiments/7/runs/{run}"
    pages = MlflowPages(experiment="http://tracker/#/7", run="http://tracker/#/9f", trial=trial, command="")
    trials = [each.model_copy(update={"mlflow_run_id": f"run{each.id}"}) for each in whole.trials]
    head = whole.search.model_copy(update={"mlflow": pages})
    (tmp_path / "served.html").write_text(
        page_of(whole.model_copy(update={"search": head, "trials": tuple(trials)}))
    )
    with opened(browser, tmp_path / "served.html") as page:
        page.locator("#table").get_by_role("button", name="trial 3", exact=True).click()
        link = page.get_by_role("dialog").get_by_role("link", name="run3")
        expect(link).to_have_attribute("href", "http://tracker/#/experiments/7/runs/run3")


FINDING = Caution(
    kind="data",
    about="near-duplicates",
    what="31 validation images look like images of the training part, such as val/apple/3.jpg",
    means="validation scores reward memory: near-copies of images in another part are known by heart",
    do="keep what was taken together in one part (data.group)",
)


@pytest.mark.parametrize("warnings", [2, 7, 12])
def test_the_first_screen_of_a_phone_has_the_answer_warnings_the_sentence_and_the_curve(
    browser: Browser, whole: Report, warnings: int, tmp_path: Path
) -> None:
    screen = {"width": 390, "height": 844}
    cautions = (whole.cautions * 6)[:2] + (FINDING,) * (warnings - 2)
    (tmp_path / "report.html").write_text(page_of(whole.model_copy(update={"cautions": cautions})))
    with opened(browser, tmp_path / "report.html", viewport=screen, has_touch=True, is_mobile=True) as page:
        for part in (".hero", ".warnings", ".sentence", ".curves .frame"):
            box = page.locator(part).first.bounding_box()
            assert box is not None, part
            assert 0 <= box["y"] < box["y"] + box["height"] <= screen["height"], part
        lines = page.locator(".warnings > li")
        expect(lines).to_have_count(min(warnings, MOST_WARNINGS + 1))
        assert page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
        folded = [each.bounding_box() for each in lines.all()]
        assert all(each is not None and 24 <= each["height"] <= 32 for each in folded)  # a line, and a finger
        lines.first.locator("summary").click()
        unfolded = lines.first.bounding_box()
        assert unfolded is not None
        assert unfolded["height"] > 60


def test_the_curves_near_the_best_are_drawn_closer(page: Page, whole: Report) -> None:
    best = best_of(whole)
    page.mouse.move(*end_of(page, ".curves-closer", best.id))
    expect(page.locator("#tip")).to_contain_text(f"trial {best.id}, the best: finished")


SCREENS = pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])


def serious_faults(page: Page) -> list[tuple[str, list[str]]]:
    """Return what axe finds, by its rules, with the places."""
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in serious]


@SCREENS
def test_axe_finds_nothing_serious(browser: Browser, file: Path, scheme: str, width: int) -> None:
    with opened(browser, file, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        page.locator("#table").get_by_role("button", name="trial 3", exact=True).click()
        assert serious_faults(page) == []


@SCREENS
def test_masks_can_be_seen_on_every_screen(
    browser: Browser, whole: Report, tmp_path: Path, scheme: str, width: int
) -> None:
    file = tmp_path / "masks.html"
    file.write_text(page_of(mask_report(whole)))
    with opened(browser, file, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        assert serious_faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator(".overlays").scroll_into_view_if_needed()
        shown = page.locator(".overlays img").all()
        assert len(shown) == 8
        assert all((each.bounding_box() or {"width": 0})["width"] >= 80 for each in shown)


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, file: Path) -> None:
    with opened(browser, file, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.locator(".curves").first.scroll_into_view_if_needed()
        sizes = "[...document.querySelectorAll('.frame span')].map(each => getComputedStyle(each).fontSize)"
        assert min(float(each.removesuffix("px")) for each in page.evaluate(sizes)) >= 11.0


def test_the_dark_page_is_dark(browser: Browser, file: Path) -> None:
    with opened(browser, file, color_scheme="dark") as page:
        red, green, blue = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        )
        assert max(red, green, blue) < 64


def test_a_print_has_the_plots_on_white_paper_and_the_closed_parts(browser: Browser, file: Path) -> None:
    with opened(browser, file, color_scheme="dark") as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        expect(page.locator("nav")).to_be_hidden()
        expect(page.get_by_role("group", name="Fields that were fixed")).to_be_visible()
        assert page.pdf()[:5] == b"%PDF-"


def test_the_page_can_be_read_without_its_script(browser: Browser, file: Path, whole: Report) -> None:
    verified = whole.answer.verified
    assert verified is not None
    with opened(browser, file, java_script_enabled=False) as page:
        expect(page.locator("#answer")).to_contain_text(f"{verified.found.mean:.4f}")
        assert page.locator(".curves svg path").count() > len(whole.trials) / 2
        expect(page.locator("#table tbody tr")).to_have_count(len(whole.trials))


def test_two_thousand_trials_are_drawn_in_two_seconds(
    browser: Browser, whole: Report, tmp_path: Path
) -> None:
    file = tmp_path / "large.html"
    file.write_text(page_of(_large(whole)))
    assert file.stat().st_size < MOST_BYTES
    seconds = []
    for _ in range(3):  # a busy machine is slow for a while
        with opened(browser, file) as page:
            seconds.append(page.evaluate(f"{PAINTED}.then(() => performance.now())") / 1000.0)
            assert page.locator(".curves path[data-t]").count() == TRIALS
            assert page.locator(".curves-closer path[data-t]").count() >= MOST_CLOSER
    assert min(seconds) < MOST_SECONDS


def _large(report: Report) -> Report:
    """Return the report with 2,000 trials of 20 epochs each, and their values in 15 dimensions."""
    known = [each for each in report.trials if each.place is not None and each.score is not None]
    curves = {epoch: 0.8 - 0.7 * math.exp(-epoch / 4.0) for epoch in range(1, EPOCHS + 1)}
    trials = tuple(
        known[at % len(known)].model_copy(
            update={
                "id": at,
                "state": "finished" if at % 3 else "stopped",
                "epochs": EPOCHS,
                "score": curves[EPOCHS] + at % 97 / 970.0,
                "scores": {epoch: score + at % 97 / 970.0 for epoch, score in curves.items()},
                "train_loss": curves,
                "val_loss": curves,
                "values": {f"field.{name}": (at * name) % 97 / 97.0 for name in range(1, 16)},
            }
        )
        for at in range(TRIALS)
    )
    ids = tuple(range(TRIALS))
    beliefs = tuple(
        report.beliefs[-1].model_copy(
            update={
                "name": f"field.{name}",
                "path": f"field.{name}",
                "domain": {"uniform": [0.0, 1.0]},
                "trials": ids,
                "positions": tuple((at * name) % 97 / 97.0 for at in ids),
            }
        )
        for name in range(1, 16)
    )
    attempts = tuple(report.attempts[0].model_copy(update={"trial": at, "lane": at % 8}) for at in ids)
    changed = {"trials": trials, "beliefs": beliefs, "attempts": attempts, "importances": None}
    return report.model_copy(update=changed)
