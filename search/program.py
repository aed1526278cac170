"""The program `tunebook`: it decides where packages are imported from before it imports any."""

from __future__ import annotations

from trainable.imports import import_installed_alone


def main() -> None:
    """Run the command line."""
    import_installed_alone()
    from search.__main__ import main as run
    from trainable.processes import ending_at_once

    ending_at_once(run)
