"""A search's folder without its checkpoints, sent through a job's log, the only way out of the dashboard.

On the cluster `python -m search.jobs.parcel FOLDER` prints it; `unpacked` extracts it from what was printed.
"""

from __future__ import annotations

import base64
import contextlib
import io
import sys
import tarfile
import time
from pathlib import Path

from search.followers.uri import without_password
from search.record.folder import read_search
from search.record.home import IN_PARCEL
from search.record.storage import local_folder
from search.study import STUDY_FILE
from trainable.errors import UserError

REPORT_FILE = "report.txt"
BEGIN, END = "-----BEGIN TUNEBOOK SEARCH-----", "-----END TUNEBOOK SEARCH-----"


def packed(folder: Path) -> str:
    """Return the folder's files and its report, as lines of text without secrets: they go into a job's log.

    Raises UserError where the folder is no search's.
    """
    uri = read_search(folder).tracking.uri or ""
    written = {
        STUDY_FILE: (folder / STUDY_FILE).read_text(encoding="utf-8").replace(uri, without_password(uri)),
        REPORT_FILE: report_of(folder),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as parcel:
        for name in IN_PARCEL:
            if (folder / name).exists():
                parcel.add(folder / name, arcname=name)
        for name, text in written.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(text.encode()), int(time.time())
            parcel.addfile(entry, io.BytesIO(text.encode()))
    return f"{BEGIN}\n{base64.encodebytes(buffer.getvalue()).decode()}{END}"


def unpacked(text: str, folder: Path) -> list[str]:
    """Write what a log holds into a folder; return the files' names. Raises UserError for no parcel."""
    begin, end = text.rfind(BEGIN), text.rfind(END)
    if begin < 0 or end < begin:
        raise UserError(
            f"the cluster could not pack the search: {' '.join(text.split()[-60:]) or 'no output'}"
        )
    content = base64.b64decode(text[begin + len(BEGIN) : end])
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as parcel:
        parcel.extractall(folder, filter="data")
        return parcel.getnames()


def report_of(folder: Path) -> str:
    """Return what `tunebook show` prints of a search."""
    from search.learning.search import Search
    from search.reporting import terminal

    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        terminal.show(Search(folder), as_json=False)
    return shown.getvalue()


def main() -> None:
    try:
        print(packed(local_folder(sys.argv[1])))
    except UserError as error:
        sys.exit(f"tunebook: {error}")


if __name__ == "__main__":
    main()
