"""Tests the page as text: what it says, and that it needs nothing from outside."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from search.record.folder import Caution
from search.record.machines import Machine
from search.reporting.content import ComparedSearch, HelpfulStep, Report, ReportedLabels
from search.reporting.page import MOST_WARNINGS, data_of, live_page, page, ranked, templates
from tests.search.reporting.small_mask_reports import mask_report
from tests.search.reporting.small_reports import planted_report
from trainable.recipe.provenance import AGREE

PARTS = (
    "answer", "curves", "use", "progress", "beliefs", "parallel", "importances", "finalists", "pruning",
    "samples", "classes", "costs", "workers", "recipe", "next", "trials",
)  # fmt: skip
LOADING = {"src", "href", "action", "poster", "data", "srcset"}


class Reader(HTMLParser):
    """The ids of a page, its sections in order, and all that a browser would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.sections: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids += [found["id"]] if "id" in found else []
        self.sections += [found["id"]] if tag == "section" else []
        self.loaded += [value for name, value in found.items() if name in LOADING]


@pytest.fixture(scope="module")
def text(whole: Report) -> str:
    return page(whole)


def test_the_parts_come_in_order(text: str) -> None:
    assert tuple(Reader(text).sections) == PARTS


def test_the_contents_lead_to_every_part(text: str) -> None:
    found = Reader(text)
    targets = [each[1:] for each in found.loaded if each.startswith("#")]
    assert set(PARTS) <= set(targets)
    assert set(targets) <= set(found.ids)


def test_ids_are_there_once(text: str) -> None:
    found = Reader(text).ids
    assert sorted(found) == sorted(set(found))


def test_nothing_is_loaded_from_elsewhere(text: str) -> None:
    assert all(each.startswith(("#", "data:")) for each in Reader(text).loaded)
    assert not re.findall(r"url\(|@import|fetch\(|XMLHttpRequest|EventSource", text)


def test_the_live_page_listens_to_its_server(whole: Report) -> None:
    assert 'new EventSource("/events")' in live_page(whole)


def test_names_from_outside_are_text_and_no_markup(whole: Report) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    trial = whole.trials[0].model_copy(update={"reason": evil, "values": {"data.own": evil}})
    search = whole.search.model_copy(update={"name": evil, "data": evil})
    text = page(whole.model_copy(update={"search": search, "trials": (trial, *whole.trials[1:])}))
    assert evil not in text
    assert Reader(text).loaded == Reader(page(whole)).loaded


def test_names_from_outside_turn_no_other_text_around(whole: Report) -> None:
    evil = "\x1b[31m\u202egnp\nexe"
    search = whole.search.model_copy(update={"name": evil, "data": evil, "address": evil})
    trial = whole.trials[0].model_copy(update={"reason": evil, "values": {evil: evil}})
    text = page(whole.model_copy(update={"search": search, "trials": (trial, *whole.trials[1:])}))
    assert r"\x1b[31m\u202egnp" + "\nexe" in text
    assert not set("\x1b\u202e") & set(text + json.dumps(data_in(text), ensure_ascii=False))


@pytest.mark.parametrize("head", [(), ("what may help:",)], ids=["of an earlier version", "with a head"])
def test_the_head_of_what_may_help_is_no_item_of_its_list(whole: Report, head: tuple[str, ...]) -> None:
    diagnosis = ("overfit: too sure", *head, "dropout: 0 -> 0.2")
    answer = whole.answer.model_copy(update={"diagnosis": diagnosis})
    said = "The curves of the best trial: overfit: too sure." + " What may help:" * len(head)
    assert f"<p>{said}</p>\n<ul><li>dropout: 0 -&gt; 0.2</li></ul>" in page(
        whole.model_copy(update={"answer": answer})
    )


def test_several_machines_have_a_table_and_a_lost_attempt_its_place(whole: Report) -> None:
    slow = {"trials": 3, "attempts": 5, "failed": 2, "images_per_second": 410.0, "speed": 0.41, "idle": 0.25}
    one, two = (
        Machine.model_validate({"name": name, "devices": ("NVIDIA H200",), **slow, "is_slow": True})
        for name in ("h1", "h2<b>")
    )
    lost = whole.attempts[0].model_copy(update={"outcome": "retried", "place": "h1, GPU 3"})
    report = whole.model_copy(update={"machines": (one, two), "attempts": (lost, *whole.attempts[1:])})
    words = " ".join(re.sub(r"<[^>]+>", " ", page(report)).split())
    assert "h2&lt;b&gt; NVIDIA H200 3 5 2 410 0.41, slow 25%" in words
    assert "tried again h1, GPU 3" in words
    assert "What each machine did" not in page(whole.model_copy(update={"machines": (one,)}))


def test_what_the_workers_time_was_used_for_is_said_with_shares(text: str, whole: Report) -> None:
    words = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    assert "4 trials at once, 0.25 GPU each, 16 min 40 s together" in words
    assert "training steps 64% 10 min 40 s" in words
    assert "a second of a trial's steps is not a second of the GPU" in words.replace("&#39;", "'")
    assert "broken off" not in words
    unknown = whole.model_copy(update={"turnaround": None, "left_out": {"turnaround": "an earlier version"}})
    assert "is not known: an earlier version" in page(unknown)


def test_the_data_of_the_cards_are_read_back(text: str, whole: Report) -> None:
    assert data_in(text) == json.loads(json.dumps(data_of(whole)))


def data_in(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_a_card_is_found_by_its_trials_number_also_behind_runs_of_finalists(whole: Report) -> None:
    *before, last = whole.trials
    later = last.model_copy(update={"id": 99, "first": "old.yaml", "places": ("h1 (10.0.0.1), process 7",)})
    found = data_of(whole.model_copy(update={"trials": (*before, later)}))["trials"]
    assert list(found) == [*(each.id for each in before), 99]
    assert found[99][-3:] == ["old.yaml", ("h1 (10.0.0.1), process 7",), last.sentence]


def test_the_command_of_a_card_can_be_pasted(whole: Report) -> None:
    search = whole.search.model_copy(update={"address": "my searches/a b"})
    assert data_of(whole.model_copy(update={"search": search}))["export"].endswith(
        " export 'my searches/a b'"
    )


def test_each_trial_is_in_the_table_once_the_finished_ones_first(text: str, whole: Report) -> None:
    rows = [int(each) for each in re.findall(r'data-row="(\d+)"', text)]
    assert sorted(rows) == [each.id for each in whole.trials]
    assert rows[0] == whole.answer.best
    states = [each.state == "finished" for each in ranked(whole)]
    assert states == sorted(states, reverse=True)


def test_many_classes_are_listed_by_their_confusions(whole: Report) -> None:
    assert whole.answers is not None
    names = [
        each.model_copy(update={"name": f"class {at}"})
        for at in range(30)
        for each in whole.answers.classes[:1]
    ]
    confusion = tuple(tuple(int(at == 3 and to == 7) * 5 for to in range(30)) for at in range(30))
    answers = whole.answers.model_copy(update={"classes": tuple(names), "confusion": confusion})
    assert isinstance(answers, ReportedLabels)
    text = page(whole.model_copy(update={"answers": answers}))
    assert "The most frequent confusions" in text
    assert '<td>class 3</td><td>class 7</td><td class="n">5</td>' in text
    without = answers.model_copy(update={"confusion": (), "confused": (("class 3", "class 7", 5),)})
    assert page(whole.model_copy(update={"answers": without})) == text


def test_masks_are_shown_with_the_scores_of_their_classes_and_the_worst_images(whole: Report) -> None:
    text = page(mask_report(whole))
    assert "mean IoU 0.6000, mean Dice 0.7500, 75% of 200 pixels right" in text
    rows = re.findall(r'<th scope="row"><span class="swatch"[^>]*></span>(\w+)</th>', text)
    assert rows == ["car", "road", "sky"]  # the weakest first, and last what occurs nowhere
    assert "in percent of the pixels of the true class" in text
    assert '<td class="wrong" style="--p:20%">20.0</td>' in text
    assert text.count('alt="Its true mask, in the colours of the classes"') == 2
    assert "images/a &lt;b&gt;.png" in text
    assert "boundary F1" not in text


def test_a_page_of_one_trial_says_what_is_missing(tmp_path_factory: pytest.TempPathFactory) -> None:
    text = page(planted_report(tmp_path_factory.mktemp("one"), trials=1))
    assert "Importances are missing: 0 trials can be compared, 20 are needed." in text
    assert "the best: the documented recipe" in text
    assert "lucky" not in text
    assert "Not measured: a study that chooses between networks, or that has <code>objective: {constr" in text
    found = Reader(text)
    assert {each[1:] for each in found.loaded if each.startswith("#")} <= set(found.ids)
    assert "Scores by class are missing: there is no checkpoint of trial 0." in text


def test_compared_searches_have_a_table_and_lines(whole: Report) -> None:
    other = {
        "name": "other",
        "address": "other",
        "state": "finished",
        "objective": whole.search.objective,
        "best": 1,
        "score": 0.8,
        "own_score": 0.7,
        "estimate": 0.79,
        "low": 0.78,
        "high": 0.8,
        "trials": 3,
        "progress": whole.progress.model_dump(),
        "recipe": {**{each.path: each.value for each in whole.recipe}, "optimizer.lr": "0.5"},
    }
    text = page(whole.model_copy(update={"compared": (ComparedSearch.model_validate(other),)}))
    assert "Beside other searches" in text
    assert text.count('class="other-0"') == 4  # the table's key, and a line in each plot of progress
    _, _, differing = text.partition("Where the best recipes differ")
    assert re.findall(r'scope="row"><code>(.*?)</code>', differing.partition("</table>")[0]) == [
        "optimizer.lr"
    ]
    assert '<td class="n">0.8790</td><td class="n">0.8600 to 0.9000</td>' in text  # this search's winner
    assert '<td class="n">0.7900</td><td class="n">0.7800 to 0.8000</td>' in text


def test_a_sentence_begins_with_a_capital_letter_but_for_names() -> None:
    sentence = templates().filters["sentence"]
    assert sentence("verified: it holds") == "Verified: it holds."
    assert sentence("test_accuracy 0.8 is low") == "test_accuracy 0.8 is low."


def test_what_stands_between_backticks_is_code_and_no_markup() -> None:
    code = templates().from_string('{% import "marks.html" as marks %}{{ marks.code(words) }}')
    assert code.render(words="`a < b` & `c`") == "<code>a &lt; b</code> &amp; <code>c</code>"


def test_every_source_names_its_guide(text: str) -> None:
    sources = re.findall(r"<cite>(.*?)</cite>", text)
    cited = [each for each in sources if re.search(r"\b00[0-4]:", each)]
    assert cited
    assert all(re.search(r"(guide|notes) 00[0-4]:", each) for each in cited)


def test_the_legend_has_the_marks_that_are_drawn(tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = page(planted_report(tmp_path_factory.mktemp("alone"), trials=1))
    assert re.findall(r'data-hide="(\w+)"', alone) == ["best"]


def test_why_there_is_no_answer_is_a_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    none = planted_report(tmp_path_factory.mktemp("none"), trials=24, last=0)
    assert "<p>No trial has finished yet.</p>" in page(none)


def test_what_was_found_about_the_images_is_shown_without_an_answer_too(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    none = planted_report(tmp_path_factory.mktemp("failed"), trials=24, last=0)
    caution = Caution(kind="data", about="pixel values", what="all images are black", do="look at them")
    assert "all images are black" in page(none.model_copy(update={"cautions": (caution,)}))


def test_seeds_that_agree_are_said_in_words_and_not_as_an_interval(whole: Report) -> None:
    alike = [each.model_copy(update={"low": None, "high": None}) for each in whole.finalists]
    text = page(whole.model_copy(update={"finalists": tuple(alike)}))
    assert f"<dd>{AGREE}, from" in text
    assert text.count(f'<td class="n">{AGREE}</td>') == len(alike)
    assert "95 % interval 0" not in text


def test_rules_that_few_trials_leave_untested_are_a_line_and_no_cards(
    tmp_path_factory: pytest.TempPathFactory, whole: Report
) -> None:
    few = planted_report(tmp_path_factory.mktemp("few"), trials=10)
    untested = [each.name for each in few.beliefs if each.verdict in (None, "untested")]
    text = page(few)
    assert len(untested) > 0
    assert f"{len(untested)} rule{'s' if len(untested) > 1 else ''} untested: too few trials (10, " in text
    assert text.count('class="tile"') == len(few.beliefs) - len(untested)
    assert page(whole).count('class="tile"') == len(whole.beliefs)


def test_the_table_of_trials_has_a_column_for_each_field_in_which_they_differ(
    text: str, whole: Report
) -> None:
    table = text[text.index('<table id="table">') :].partition("</table>")[0]
    head = table.partition("</thead>")[0].replace("<wbr>", "")
    varied = {path for trial in whole.trials for path in trial.values}
    assert len(varied) > 1
    assert all(f">{path}</button>" in head for path in varied)
    changed = [each.model_copy(update={"values": {**each.values, "loop.seed": 3}}) for each in whole.trials]
    same = page(whole.model_copy(update={"trials": tuple(changed)}))
    assert "loop.<wbr>seed</button>" not in same


def test_warnings_stand_above_the_sentence_and_names_in_them_are_text(whole: Report) -> None:
    hostile = "<script>x</script> is unlike `test`"
    caution = Caution(kind="data", about="parts alike", what=hostile)
    trials = [each.model_copy(update={"sentence": "resnet <b> at 0.1"}) for each in whole.trials]
    text = page(whole.model_copy(update={"cautions": (caution,), "trials": tuple(trials)}))
    assert "&lt;script&gt;x&lt;/script&gt; is unlike" in text
    assert text.index("is unlike") < text.index("Resnet &lt;b&gt; at 0.1.") < text.index('id="curves"')


def test_each_warning_is_folded_to_a_line_that_says_what_it_is_about_and_many_are_below(
    whole: Report,
) -> None:
    mend = "leave them out"
    copies = [
        Caution(kind="data", about=f"check {number}", what="9 copies", means=f"memory {number}", do=mend)
        for number in range(MOST_WARNINGS + 2)
    ]
    text = page(whole.model_copy(update={"cautions": tuple(copies)}))
    for number, each in enumerate(copies):
        assert f"<summary><b>{each.about}</b>: {each.means}</summary>9 copies: memory {number}." in text
    first, fold, rest = text.partition("<summary>2 more</summary>")
    assert fold
    assert first.count("9 copies") == MOST_WARNINGS
    assert rest.partition("</section>")[0].count("9 copies") == 2
    gap = Caution(kind="gap", about="val_accuracy", what="test is 0.2 below")
    assert "<b>test against validation</b>: test is 0.2 below</summary>" in page(
        whole.model_copy(update={"cautions": (gap,)})
    )


def test_the_next_round_has_the_steps_of_refine_with_their_reasons_in_its_order(whole: Report) -> None:
    assert whole.next_round is not None
    steps = [
        HelpfulStep(kind="data", do="`tunebook check x` lists the copies", why="9 images <are> copies"),
        HelpfulStep(kind="length", do="budget.epochs: 20 -> 40", why="it still improves"),
        HelpfulStep(kind="stop", do="or stop here", why="nothing was gained"),
    ]
    after = page(
        whole.model_copy(update={"next_round": whole.next_round.model_copy(update={"steps": tuple(steps)})})
    )
    shown = after[after.index('id="next"') :].partition("</ol>")[0]
    said = (
        "<b>data: <code>tunebook check x</code> lists the copies</b><br>9 images &lt;are&gt; copies.",
        "<b>length: budget.epochs: 20 -&gt; 40</b><br>It still improves.",
        "<b>or stop here</b><br>Nothing was gained.",
    )
    places = [shown.index(each) for each in said]
    assert places == sorted(places)


def test_validation_and_test_are_a_table_with_intervals(text: str, whole: Report) -> None:
    table = text[text.index("Validation and test side by side") :].partition("</table>")[0]
    for each in whole.answer.parts:
        assert f'<th scope="row">{each.metric}</th>' in table
        assert f"{each.low:.4f} to {each.high:.4f}" in table
