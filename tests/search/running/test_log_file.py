"""Tests what comes into the log of a search, and what is kept for it before it has a folder."""

from __future__ import annotations

import logging
from pathlib import Path

from search.running.log_file import keeping_stages, logging_to
from trainable import stages
from trainable.stages import stage


def lines(file: Path) -> list[str]:
    return [line.split(" ", 2)[2] for line in file.read_text().splitlines()]


def test_the_log_of_a_search_has_the_stages_that_came_before_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "search.log"
    with keeping_stages():
        with stage("reading images"):
            pass
        with logging_to(file), stage("starting Ray"):
            logging.getLogger("search.running").info("begun")
        with stage("writing a report"):
            pass
    assert lines(file) == ["INFO reading images: 0.00 s", "INFO begun", "INFO starting Ray: 0.00 s"]
    assert not stages.logger.handlers
