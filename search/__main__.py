"""Defines the command line `tunebook`. Commands import what they need when called, so that --help is fast."""

from __future__ import annotations

import sys

if __name__ == "__main__":  # called as `python -m search`
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder where it runs: what follows is imported from what is installed
    from trainable.imports import import_installed_alone

    import_installed_alone()

from typing import TYPE_CHECKING, Annotated

import typer

from search.commands.options import (
    FAILED,
    IMPORTS,
    INTERRUPTED,
    AuditPruningOptions,
    BackbonesOptions,
    BatchFindOptions,
    BundleOptions,
    CheckOptions,
    ExplainOptions,
    ExportOptions,
    ExtendOptions,
    Folder,
    LrFindOptions,
    RefineOptions,
    ReportOptions,
    ResumeOptions,
    SearchOptions,
    ShrinkOptions,
    command,
    exit_with,
)
from search.jobs import cli
from search.running.log_file import keeping_stages
from trainable.collector import paused
from trainable.errors import UserError
from trainable.imports import import_installed_alone
from trainable.processes import ended_by_signals
from trainable.stages import shown_by, stage, waited_for
from trainable.terminal import StageLines, show_what_can_be_shown, tell
from trainable.train_options import Json, TrainOptions
from trainable.tune.causes import in_words, refusal_in

if TYPE_CHECKING:  # a driver imports torch and Ray, which take seconds
    from search.running.driver import Driver

app = typer.Typer(
    name="tunebook",
    help="Find the best training recipe of an image model on a Ray cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _driver(options: SearchOptions | ResumeOptions | ExtendOptions | AuditPruningOptions) -> Driver:
    """Return what drives a search, after the imports that take seconds, which are told as a stage."""
    with stage(IMPORTS), paused():
        from search.commands.guests import driver
    return driver(address=options.address, may_fetch=options.download)


@command(app)
def search(options: SearchOptions) -> None:
    """Search for the best recipe: sample, train, prune, track and export."""
    drives = _driver(options)
    from search.commands.asked import study_asked
    from search.commands.guests import resolved_study

    study = study_asked(options.study, options.flags, options.settings or ())
    if options.again and study.name is None:
        raise UserError("--resume: needs the search's name; give --name NAME")
    exit_with(drives.search(resolved_study(study), again=options.again))


@command(app)
def resume(options: ResumeOptions) -> None:
    """Resume an interrupted search from its checkpoints, with the same trials and MLflow runs."""
    exit_with(_driver(options).resume(options.folder))


@command(app)
def extend(options: ExtendOptions) -> None:
    """Go on with a search, finished or not, with more trials; finalists are chosen anew at the end."""
    exit_with(_driver(options).extend(options.folder, options.trials))


@command(app)
def show(folder: Folder, json: Json = False) -> None:
    """Show a search: its trials, the best one, what pruning saved."""
    from search.learning.search import Search
    from search.reporting import terminal

    terminal.show(Search(folder), as_json=json)


@command(app)
def report(options: ReportOptions) -> None:
    """Write a search's report: one page, for any browser, that needs no network."""
    from search.commands.report import run_report

    run_report(options)


@command(app)
def ui(
    folder: Folder, port: Annotated[int, typer.Option(help="Port of the page.", min=1, max=65535)] = 5000
) -> None:
    """Open MLflow's pages on the search's runs, at http://127.0.0.1:PORT."""
    from search.commands.ui import serve

    raise typer.Exit(serve(folder, port))


@command(app)
def sync(folder: Folder) -> None:
    """Send to MLflow, and to an object store, what could not be sent while the search ran."""
    with paused():
        from search.commands.guests import sync as send

    raise typer.Exit(0 if send(folder) else FAILED)


@command(app)
def audit(folder: Folder) -> None:
    """Compare the journal with MLflow, optuna.db and the checkpoints: is every epoch in each, once?"""
    from search.followers.audit import audit as compare
    from search.learning.search import Search

    found = compare(Search(folder))
    tell(str(found))
    raise typer.Exit(FAILED if found.differences else 0)


@command(app)
def audit_pruning(options: AuditPruningOptions) -> None:
    """Train a sample of the stopped trials to their end: would a better one have been among them?"""
    exit_with(_driver(options).audit_pruning(options.folder, options.share))


@command(app)
def export(options: ExportOptions) -> None:
    """Write a trial's recipe with its provenance as YAML, or for another program, or for other hardware."""
    from search.commands.export import run_export

    run_export(options)


@command(app)
def bundle(options: BundleOptions) -> None:
    """Write a trained network, ready to ship: ONNX, torch.export, timm, a script and a model card."""
    from search.commands.bundle import run_bundle

    run_bundle(options)


@command(app)
def refine(options: RefineOptions) -> None:
    """Audit a search that has ended, and write the next study, with a reason for each change."""
    from search.commands.refine import run_refine

    run_refine(options)


@command(app)
def train(options: TrainOptions) -> None:
    """Train one recipe, without a search."""
    from search.results.teachers import recipe_with_teacher
    from trainable.__main__ import train_file

    raise typer.Exit(train_file(options, recipe_with_teacher))


@command(app)
def shrink(options: ShrinkOptions) -> None:
    """Prune a trained network's channels to a share of its operations, fine-tune it, and say what it lost."""
    from search.commands.shrink import run_shrink

    run_shrink(options)


@command(app)
def explain(options: ExplainOptions) -> None:
    """Explain every range of a study or a search, or every value of a recipe, with its reason and source.

    For data alone, the default study is explained.
    """
    from search.commands.explain import run_explain

    run_explain(options)


@command(app, "lr-find")
def lr_find(options: LrFindOptions) -> None:
    """Find the band of learning rates at which a recipe's first steps train well."""
    from search.commands.probes import run_lr_find

    raise typer.Exit(0 if run_lr_find(options) else FAILED)


@command(app, "batch-find")
def batch_find(options: BatchFindOptions) -> None:
    """Find the largest micro-batch that fits into memory, and the smallest that is as fast."""
    from search.commands.probes import run_batch_find

    raise typer.Exit(0 if run_batch_find(options) else FAILED)


@command(app)
def backbones(options: BackbonesOptions) -> None:
    """Compare pretrained networks on your images, by linear heads on their frozen features."""
    from search.commands.backbones import run_backbones

    run_backbones(options)


@command(app)
def check(options: CheckOptions) -> None:
    """Check data, labels, network and first steps, in a minute, before hours are spent on them.

    With --address check whether each machine of a cluster can train, and nothing else.
    """
    from search.commands.check import check_cluster, run_check

    sound = run_check(options) if options.address is None else check_cluster(options, options.address)
    raise typer.Exit(0 if sound else FAILED)


app.add_typer(cli.app)


def main() -> None:
    """Run the command line; a person's mistake is one message and an exit code, never a traceback.

    At Ctrl-C, SIGTERM and a closed terminal every command ends the processes that it has started, and removes
    what it has half written.
    """
    import_installed_alone()  # an older installation calls this function, and not search.program
    show_what_can_be_shown()
    try:
        with waited_for(), keeping_stages(), ended_by_signals(), StageLines() as lines, shown_by(lines):
            app()
    except UserError as error:
        tell(f"tunebook: {error}", sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if (refused := refusal_in(error)) is None:
            raise
        tell(f"tunebook: {in_words(refused)}; make room, and call this again", sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
