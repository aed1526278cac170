"""The commands for searches that run as jobs of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from search.commands.options import command
from trainable.train_options import Download, Set

app = typer.Typer()

Dashboard = Annotated[
    str,
    typer.Option(
        metavar="http://HEAD:8265",
        envvar="RAY_API_SERVER_ADDRESS",
        help="The dashboard of the cluster's head.",
    ),
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="A job's name, as `submit` and `status` print it.")]
# the exit code for the state in which a followed job ended; any other state is a failure
EXIT_CODES = {"SUCCEEDED": 0, "STOPPED": 130}
FAILED = 1


@dataclass(frozen=True)
class SubmitOptions:
    """What `tunebook submit` is asked for."""

    study: Annotated[
        Path, typer.Argument(metavar="STUDY.yaml", help="A study; its paths are paths on the cluster.")
    ]
    address: Dashboard
    name: Annotated[str | None, typer.Option(help="Name of the search: STORAGE/NAME.")] = None
    storage: Annotated[
        str | None, typer.Option(help="Folder on the cluster, or URI, that holds the searches.")
    ] = None
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow's URI, as the cluster reaches it.")] = None
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=VALUE]", help="Pass an environment variable on; may be repeated."),
    ] = None
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow the job's log.")] = False
    download: Download = False
    settings: Set = None


@dataclass(frozen=True)
class LogsOptions:
    """What `tunebook logs` is asked for."""

    job: Job
    address: Dashboard
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job ends.")] = False


@dataclass(frozen=True)
class FetchOptions:
    """What `tunebook fetch` is asked for."""

    job: Job
    address: Dashboard
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="A new folder; default: ./NAME.")
    ] = None
    folder: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="The search's folder on the cluster, for a job that `submit` did not start.",
        ),
    ] = None


@command(app)
def submit(options: SubmitOptions) -> None:
    """Search on a Ray cluster, as a job that needs this machine no more, and follow its log."""
    from search.commands.asked import study_asked
    from search.jobs import commands

    flags = {"name": options.name, "storage": options.storage, "tracking.uri": options.tracking_uri}
    asked, address = study_asked(options.study, flags, options.settings or ()), options.address
    job = commands.submit(asked, address, environment=options.env or (), may_fetch=options.download)
    if not options.detach:
        raise typer.Exit(EXIT_CODES.get(commands.follow(address, job), FAILED))


@command(app)
def status(
    address: Dashboard,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Show only this job.")] = None,
) -> None:
    """Show the searches that were submitted to a cluster, or the state of one of them."""
    from search.jobs import commands

    commands.status(address, job)


@command(app)
def stop(job: Job, address: Dashboard) -> None:
    """Stop a submitted search cleanly; submit it again to resume it."""
    from search.jobs import commands

    raise typer.Exit(0 if commands.stop(address, job) in ("STOPPED", "SUCCEEDED") else FAILED)


@command(app)
def logs(options: LogsOptions) -> None:
    """Print what a submitted search has printed."""
    from search.jobs import commands

    if options.follow:
        raise typer.Exit(EXIT_CODES.get(commands.follow(options.address, options.job), FAILED))
    commands.logs(options.address, options.job)


@command(app)
def fetch(options: FetchOptions) -> None:
    """Copy the best recipe, the report and the journal of a submitted search to this machine."""
    from search.jobs import commands

    commands.fetch(options.address, options.job, options.out, options.folder)
