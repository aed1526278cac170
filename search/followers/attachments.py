"""What belongs to a search's runs in MLflow beside its events: data set, view, files, note, model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.followers import conclusions
from search.followers.conclusions import Conclusion
from search.followers.consumer import error_line
from search.followers.run_updates import LONGEST_TAG, NOTE, TABLES, Outbox, RunOwner, RunUpdate, clip
from search.followers.saved_view import AGAIN, TAG, repeats_view, saved_view
from search.followers.uri import readable
from search.record.cursor import run_page
from search.record.home import IN_MLFLOW, REPORT_FILE, Home
from search.record.trials import Trial
from search.study import STUDY_FILE, Study
from trainable.data import DataInfo
from trainable.files.regular import check_regular

if TYPE_CHECKING:  # MLflow and torch take 2 s each to import
    from torch.export import ExportedProgram

    from search.followers.mlflow_runs import RunStore

RECIPE_FILE = "recipe.yaml"
VERDICTS_FILE = "verdicts.json"
DATA, VIEW, VIEW_OF_REPEATS, MODEL = "data set", "view", "view of repeats", "model"
Sent = dict[str, str]  # what MLflow has, by the names of files and the four above: mostly digests


@dataclass(frozen=True)
class Contents:
    """What the attachments are made from, when they are sent; None: nothing of the kind is sent."""

    recipe_text: Callable[[Trial], str]  # a trial's whole recipe as YAML
    conclude: Callable[[], Conclusion] | None = None  # the conclusion of a search that is over
    info: Callable[[], DataInfo] | None = None  # what is known of the images
    program: Callable[[], ExportedProgram] | None = None  # the best trial's network


class Attachments:
    """The files of runs in MLflow; what is new or has changed is sent, once.

    The functions of `contents` are called in the thread that sends; what fails in them is refused by
    `refuse(item, why)`, since another attempt would fail too.
    """

    def __init__(
        self,
        home: Home,
        study: Study,
        refuse: Callable[[str, str], None],
        contents: Contents,
    ) -> None:
        self._home, self._study, self._refuse, self._contents = home, study, refuse, contents

    def first_note(self, experiment_id: str, search_id: str) -> str:
        """Return the note of a search that has just begun."""
        plan = conclusions.plan(self._study, self._home.address)
        return f"{plan}\n\n{conclusions.links(experiment_id, search_id)}"

    def send_of_trial(self, store: RunStore, trial: Trial) -> None:
        """Send a new trial's recipe and data set."""
        try:
            text = self._contents.recipe_text(trial)
        except Exception as error:
            self._refuse(f"trial {trial.id}: {RECIPE_FILE}", error_line(error))
            return
        store.store_text(trial.id, text, RECIPE_FILE)
        if trial.repeat is None or trial.repeat.split is None:  # the digest is that of the search's split
            self._send_data(store, trial.id)

    def send(self, store: RunStore, outbox: Outbox, sent: Sent) -> None:
        """Send all that belongs to the search's own run, the model last, which takes longest."""
        if DATA not in sent:
            self._send_data(store, None)
            sent[DATA] = "sent"
        self._send_view(store, outbox, sent)
        self._send_files(store, sent)
        conclude, program = self._contents.conclude, self._contents.program
        if conclude is not None and outbox.is_over:
            self._send_conclusion(store, outbox, sent, conclude)
        if program is not None and outbox.record.state == "finished" and outbox.best is not None:
            self._send_model(store, outbox, sent, outbox.best, program)

    def _send_data(self, store: RunStore, run: RunOwner) -> None:
        if (info := self._contents.info) is not None:
            from search.followers.logged_model import data_input

            store.log_data(run, lambda: data_input(info()))

    def _send_view(self, store: RunStore, outbox: Outbox, sent: Sent) -> None:
        """Send the view once there is a trial, and again when one has other fields; likewise for repeats."""
        record, metric, key = outbox.record, self._study.objective.metric, f"{TAG}{outbox.record.search_id}"
        if record.trials:
            self._save_view(store, sent, VIEW, key, saved_view(record, metric, outbox.mode))
        if any(trial.repeat is not None for trial in record.trials):
            self._save_view(store, sent, VIEW_OF_REPEATS, f"{key}{AGAIN}", repeats_view(record, metric))

    def _save_view(self, store: RunStore, sent: Sent, item: str, key: str, view: str) -> None:
        if (digest := short_hash(view.encode())) != sent.get(item):
            store.save_view(key, view)
            sent[item] = digest

    def _send_files(self, store: RunStore, sent: Sent) -> None:
        for name in IN_MLFLOW:
            file = self._home.folder / name
            if not file.exists():
                continue
            check_regular(file)
            if (digest := short_hash(file.read_bytes())) == sent.get(name):
                continue
            if name == STUDY_FILE:
                store.store_text(None, readable(self._study).yaml(), name)
            else:
                store.store_file(file)
            sent[name] = digest

    def _send_conclusion(
        self, store: RunStore, outbox: Outbox, sent: Sent, conclude: Callable[[], Conclusion]
    ) -> None:
        """Send the verdicts as a table, and the answer in the note of the search's run."""
        try:
            conclusion = conclude()
        except Exception as error:
            self._refuse(VERDICTS_FILE, error_line(error))
            return
        whole = clip(self._last_note(store, outbox, sent, conclusion), LONGEST_TAG)
        digest = short_hash(f"{whole}\n{conclusion.table}".encode())
        if digest != sent.get(VERDICTS_FILE):
            store.store_text(None, conclusion.table, VERDICTS_FILE)
            shown_as = json.dumps([{"path": VERDICTS_FILE, "type": "table"}])
            store.send(None, RunUpdate(tags={TABLES: shown_as, NOTE: whole}))
            sent[VERDICTS_FILE] = digest

    def _last_note(self, store: RunStore, outbox: Outbox, sent: Sent, conclusion: Conclusion) -> str:
        address, experiment = self._home.address, store.experiment_id
        has_report = (self._home.folder / REPORT_FILE).exists()
        links = conclusions.links(
            experiment,
            str(outbox.record.search_id),
            repeats=VIEW_OF_REPEATS in sent,
            report=run_page(experiment, store.runs[None], REPORT_FILE) if has_report else "",
        )
        again = conclusions.reproduce(address) if outbox.best is not None else ""
        study = self._study.with_trials(outbox.record.extended_to)
        return conclusions.whole(conclusion, links, [again, conclusions.plan(study, address)])

    def _send_model(
        self, store: RunStore, outbox: Outbox, sent: Sent, best: Trial, program: Callable[[], ExportedProgram]
    ) -> None:
        """Send the best trial's model, unless MLflow has it, and register it where the study says so."""
        name = self._study.tracking.register_as
        if sent.get(MODEL) == (wanted := f"{best.id} {name or ''}".strip()):
            return
        from search.followers.logged_model import LoggedWinner

        record = outbox.record
        winner = LoggedWinner(store, str(record.search_id), record.name, best, outbox.scores(best))

        def give() -> None:
            assert self._contents.info is not None, "it is given with the program"
            model_id = winner.stored() or winner.store(program(), self._contents.info())
            if name is not None:
                winner.register(model_id, name)
            sent[MODEL] = wanted

        store.offer(f"trial {best.id}: {MODEL}", give)


def short_hash(content: bytes) -> str:
    """Return 64 bits of a digest, as text."""
    return hashlib.sha256(content).hexdigest()[:16]
