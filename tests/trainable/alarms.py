"""Picks from findings what a person is warned of."""

from __future__ import annotations

from collections.abc import Iterable

from trainable.checks.finding import CheckName, Finding


def alarms(findings: Iterable[Finding]) -> dict[CheckName, Finding]:
    return {finding.check: finding for finding in findings if finding.level in ("error", "warning")}
