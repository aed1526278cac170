"""Whether a search of a name exists already."""

from __future__ import annotations

import re
from shlex import quote

from search.record.home import EVENTS_FILE, FACTS_FILE, LOCK_FILE, Home
from search.record.journal import check_format
from search.record.lock import empty
from search.study import STUDY_FILE, Study, read_study
from search.study.study import data_name
from trainable.errors import UserError

FORMER_EXPERIMENT = "tunebook"  # of all searches, before experiments were called after the data
# the names of files that a driver writes before a search's study is there, unfinished ones among them
BEFORE_THE_STUDY = re.compile(
    rf"{re.escape(LOCK_FILE)}(-\d+)?|{re.escape(FACTS_FILE)}"
    rf"|\.({re.escape(FACTS_FILE)}|{re.escape(STUDY_FILE)})\.\w+"
)


def refuse_existing(home: Home, study: Study) -> None:
    """A name is used once: the same study is resumed, another one needs another name. Raises UserError.

    JournalError says that another version of tunebook wrote the search.

    The caller must have the folder's lock: otherwise a search of this name could begin in between.
    """
    names = {path.name for path in home.folder.iterdir()}
    if all(BEFORE_THE_STUDY.fullmatch(name) for name in names):
        empty(home.folder)  # the remains of a search whose driver was killed before it began
        return
    if not {STUDY_FILE, FACTS_FILE} <= names:
        raise UserError(f"{home.address}: exists and is not a search; choose another --name")
    check_format(home.folder / EVENTS_FILE)
    if is_same_study(home, study):
        again = f"`tunebook resume {quote(home.address)}`"
        raise UserError(f"{home.address}: this search exists; go on with {again}")
    raise UserError(f"{home.address}: another study has this name; choose another --name")


def is_same_study(home: Home, study: Study) -> bool:
    """Say whether this very study is there already; what becomes of unfit machines may change, and a search
    of an earlier version has another experiment by default.

    Raises StudyError where its file cannot be read.
    """
    file = home.folder / STUDY_FILE
    if not file.exists():
        return False
    there = read_study(file)
    if (there.tracking.experiment, study.experiment) == (FORMER_EXPERIMENT, data_name(study.data)):
        study = study.model_copy(
            update={"tracking": there.tracking.model_copy(update={"uri": study.tracking.uri})}
        )
    return there.model_copy(update={"machines": study.machines}) == study
