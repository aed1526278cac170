"""Tests that a shell which asks for completions gets commands, options, searches, networks and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from search.__main__ import app


def completed(*words: str) -> list[str]:
    """Return what bash is told when the last of a command's words is to be completed."""
    asked = {"COMP_WORDS": " ".join(("tunebook", *words)), "COMP_CWORD": str(len(words))}
    done = CliRunner().invoke(
        app, [], env={"_TUNEBOOK_COMPLETE": "complete_bash", **asked}, prog_name="tunebook"
    )
    return done.stdout.split()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flowers", "leaves"):
        (tmp_path / "searches" / name).mkdir(parents=True)
        (tmp_path / "searches" / name / "study.yaml").touch()
    (tmp_path / "searches" / "notes").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("audit-",), ["audit-pruning"]),
        (("lr-find", "--li"), []),
        (("batch-find", "--li"), ["--limit-gib"]),
        (("show", "sea"), ["searches/flowers", "searches/leaves"]),
        (("export", "searches/l"), ["searches/leaves"]),
        (("search", "--metric", "val_macro"), ["val_macro_f1"]),
        (("train", "--device", "cu"), ["cuda"]),
    ],
)
def test_words_are_completed(words: tuple[str, ...], wanted: list[str]) -> None:
    assert completed(*words) == wanted


@pytest.mark.slow("imports timm, where nobody has asked for its names before")
def test_networks_of_all_libraries_are_completed() -> None:
    assert completed("lr-find", "--model", "tf_efficientnet_lite") == [
        f"tf_efficientnet_lite{number}" for number in range(5)
    ]
    assert "torchvision/deeplabv3_resnet50" in completed("search", "--model", "torchvision/deep")
    assert completed("search", "--model", "unet_") == ["unet_small"]
