"""`tunebook refine`: the audit of a search that has ended, and the study that follows."""

from __future__ import annotations

import json

from search.commands.options import RefineOptions
from search.learning.refine import Refined, refine, write_next
from search.learning.search import Search
from search.reporting.terminal import show_refined
from trainable.files.folders import new_file
from trainable.stages import stage
from trainable.terminal import tell_json


def run_refine(options: RefineOptions) -> None:
    """Print the audit and, where it asks for changes, write the next study to `out`.

    Where nothing is to be changed no file is written, which `--json` says by `out: null`: that the next thing
    is to mend the images, or to stop, is an answer. Raises UserError, before anything is written, where the
    folder holds no search that is over, or `out` exists.
    """
    folder, out, refined = options.folder, options.out, refined_search(options)
    if options.as_json:
        where = str(out) if out is not None and refined.study is not None else None
        tell_json(json.dumps({**refined.json(), "out": where}, indent=2, allow_nan=False))
    else:
        show_refined(refined, folder, out)


def refined_search(options: RefineOptions) -> Refined:
    """Return the audit of a search, whose next study is written where that is asked for. Raises UserError."""
    out = options.out
    if out is not None:
        out = new_file("-o", out, force=options.force)
    with stage("auditing the search"):
        refined = refine(Search(options.folder.absolute()))
    if out is not None:
        write_next(refined, out)
    return refined
