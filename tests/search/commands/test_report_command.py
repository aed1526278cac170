"""Tests `tunebook report`: which files it writes, and what it says where it cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from search.reporting.content import Report
from tests.search.command_line import Refusal, Tunebook
from tests.search.planted_searches import planted
from tests.search.reporting.small_reports import BELIEVED, hill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return planted(tmp_path, hill, trials=3, sampler__kind="random", **BELIEVED)


def test_both_files_are_written_to_the_folder_of_the_search(tunebook: Tunebook, folder: Path) -> None:
    assert tunebook("report", folder) == (0, f"{folder / 'report.html'}\n", "")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert len(Report.model_validate_json((folder / "report.json").read_text()).trials) == 3


@pytest.mark.parametrize(("name", "begins"), [("a.html", "<!doctype html>"), ("a.json", '{"version":1,')])
def test_one_file_is_written_elsewhere(tunebook: Tunebook, folder: Path, name: str, begins: str) -> None:
    assert tunebook("report", folder, "-o", name) == (0, f"{name}\n", "")
    assert Path(name).read_text().startswith(begins)
    assert not (folder / "report.html").exists()


def test_the_data_are_printed(tunebook: Tunebook, folder: Path) -> None:
    code, out, _ = tunebook("report", folder, "--json")
    assert (code, json.loads(out)["answer"]["best"]) == (0, 1)
    assert not (folder / "report.html").exists()


def test_other_searches_are_set_beside_it(tunebook: Tunebook, folder: Path, tmp_path: Path) -> None:
    others = [planted(tmp_path / name, hill, trials=2, **BELIEVED) for name in ("b", "c")]
    flags = [flag for each in others for flag in ("--compare", each)]
    _, out, _ = tunebook("report", folder, *flags, "--json")
    assert [each["address"] for each in json.loads(out)["compared"]] == list(map(str, others))


def test_a_file_that_cannot_be_written_is_one_message(refusal: Refusal, folder: Path) -> None:
    err = refusal("report", folder, "-o", folder / "study.yaml" / "a.html")
    assert err.count("\n") == 1
    file = folder / "study.yaml"
    assert f"-o {file / 'a.html'}: folder {file}: cannot be made: {file} is a file" in err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--watch", "--json"), "--watch serves the page; leave out --json and -o"),
        (("--watch", "-o", "a.html"), "--watch serves the page; leave out --json and -o"),
        (
            ("--json", "-o", "a.json"),
            "--json prints the data; to write them to a file, give -o FILE.json alone",
        ),
        (("-o", "a.txt"), "-o a.txt: expected a name that ends in .html or .json"),
    ],
)
def test_flags_that_would_be_ignored_are_refused(
    refusal: Refusal, tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    (tmp_path / "study.yaml").touch()
    assert says in refusal("report", tmp_path, *flags)
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize("flags", [(), ("--watch",), ("--json",)])
def test_what_is_no_search_is_refused(refusal: Refusal, tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert "not a search folder" in refusal("report", tmp_path, *flags)


def test_a_page_that_exists_is_overwritten_only_with_force(
    tunebook: Tunebook, refusal: Refusal, folder: Path
) -> None:
    Path("a.html").write_text("earlier")
    assert "-o: a.html exists already" in refusal("report", folder, "-o", "a.html")
    assert Path("a.html").read_text() == "earlier"
    assert tunebook("report", folder, "-o", "a.html", "--force")[0] == 0
    assert Path("a.html").read_text().startswith("<!doctype html>")


def test_the_report_is_opened_and_written_only_where_it_is_old(
    tunebook: Tunebook, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_in_browser(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_in_browser)
    file = folder / "report.html"
    assert tunebook("open", folder) == (0, f"{file}\n", "")
    written = file.stat().st_mtime_ns
    assert tunebook("open", folder)[0] == 0
    assert (file.stat().st_mtime_ns, opened) == (written, [file.as_uri()] * 2)
    os.utime(file, (0, 0))
    assert tunebook("open", folder)[0] == 0
    assert file.stat().st_mtime_ns >= written


def test_the_path_of_the_report_is_printed_where_no_browser_is(
    tunebook: Tunebook, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    _, out, _ = tunebook("open", folder)
    assert out == f"{folder / 'report.html'}\nno browser was found here; open this file in one\n"
