"""Where a search lives: its folder on this machine, its object store if it has one, its files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from search.study import STUDY_FILE, Study
from trainable.files.paths import state_root
from trainable.files.store import Store, is_uri

FACTS_FILE = "facts.json"
EVENTS_FILE = "events.jsonl"
# it says how many lines of the journal are safe on the disk: a journal with fewer lines was cut
SYNCED_FILE = ".synced"
NO_SEARCH = "not a search folder"  # so it is said of one
LOG_FILE = "search.log"
UI_LOG_FILE = "mlflow-ui.log"
BEST_FILE = "best.yaml"
PICTURE_FILE = "trials.png"
# it says whether the exported recipe's figure has held when it was trained again
VERIFICATION_FILE = "verification.json"
FINDINGS_FILE = "findings.json"  # what was found about the images, by the search itself and by `check`
REPORT_FILE, REPORT_DATA_FILE = "report.html", "report.json"
CURSOR_FILE = "mlflow.json"  # it says how far the journal has been sent to MLflow
MIRROR_FILE = "optuna.db"
TRIALS_FOLDER = "trials"

LOCK_FILE = ".lock"
CURSOR_LOCK_FILE = ".mlflow.lock"
DRIVER_FILE = ".driver"  # only a store has it: the sign of life of the driver at work
# only a folder that copies a store has it: a driver of another machine is at work
ELSEWHERE_FILE = ".elsewhere"

# the files that a store has beside the journal, MLflow's cursor into it and the trials. The study is written
# last: once it is there, a search can be resumed. Optuna's mirror is not stored: it is rebuilt from the
# journal
IN_STORE = (
    FACTS_FILE,
    LOG_FILE,
    BEST_FILE,
    PICTURE_FILE,
    REPORT_FILE,
    REPORT_DATA_FILE,
    VERIFICATION_FILE,
    FINDINGS_FILE,
    STUDY_FILE,
)
# the files that `tunebook fetch` copies unchanged, in this order; the study is copied without the password
# that it may hold
IN_PARCEL = (
    FACTS_FILE,
    SYNCED_FILE,
    EVENTS_FILE,
    LOG_FILE,
    BEST_FILE,
    PICTURE_FILE,
    REPORT_FILE,
    REPORT_DATA_FILE,
    VERIFICATION_FILE,
    FINDINGS_FILE,
    CURSOR_FILE,
    MIRROR_FILE,
)
# the files that are uploaded to the search's run in MLflow, whenever one appears or changes
IN_MLFLOW = (STUDY_FILE, BEST_FILE, PICTURE_FILE, REPORT_FILE, VERIFICATION_FILE)
# the files that a report shows
REPORTED = (STUDY_FILE, EVENTS_FILE, FACTS_FILE, FINDINGS_FILE, VERIFICATION_FILE)


def copies_of_stored() -> Path:
    """Return the folder in which this machine has its copies of searches in object stores."""
    return state_root() / "searches"


@dataclass(frozen=True)
class Home:
    """Where one search lives: its driver writes `folder`, and `store` outlasts the machine."""

    folder: Path
    # the search's own folder in an object store; None where there is only `folder`
    store: Store | None = None

    @classmethod
    def of(cls, study: Study) -> Home:
        """Return the home of a study's search, which needs a name: STORAGE/NAME."""
        if is_uri(study.storage):
            return cls.at(Store(study.storage).at(str(study.name)).uri)
        return cls(Path(study.storage) / str(study.name))

    @classmethod
    def at(cls, address: str | Path) -> Home:
        """Return the home that a person names by its folder or its URI.

        Raises StoreError for a URI that names no folder in a store.
        """
        if not is_uri(str(address)):
            return cls(Path(address))
        store = Store(str(address))
        storage = hashlib.sha256(store.parent.at().uri.encode()).hexdigest()[:12]
        return cls(copies_of_stored() / storage / store.name, store)

    @property
    def storage(self) -> str:
        """The folder or the URI that contains the search's own one."""
        return str(self.folder.parent) if self.store is None else self.store.parent.uri

    @property
    def address(self) -> str:
        """The folder or the URI by which a person names the search."""
        return self._address()

    def checkpoints(self, trial: int) -> str:
        """Return the folder or the URI that holds a trial's checkpoints."""
        return self._address(TRIALS_FOLDER, f"{trial:04d}")

    def trials_with_checkpoints(self) -> set[int]:
        """Return the trials that may have checkpoints. Raises StoreError where a store does not answer."""
        return {int(name) for name in names_below(self._address(TRIALS_FOLDER)) if name.isdecimal()}

    def _address(self, *names: str) -> str:
        if self.store is not None:
            return self.store.at(*names).uri
        return str(self.folder.joinpath(*names))


def names_below(address: str) -> list[str]:
    """Return the names directly below a folder or a URI, in order; none where it does not exist."""
    if is_uri(address):
        return Store(address).names()
    return sorted(each.name for each in Path(address).iterdir()) if Path(address).is_dir() else []
