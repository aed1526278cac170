"""Defines the command line `tunebook`. Commands import what they need when called, so that --help is fast."""

from __future__ import annotations

import sys

if __name__ == "__main__":  # called as `python -m search`
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder where it runs: what follows is imported from what is installed
    from trainable.imports import import_installed_alone

    import_installed_alone()

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
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
    DeleteOptions,
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
    UiOptions,
    aside,
    bench_of,
    command,
    exit_with,
    tell_fields,
)
from search.jobs import cli
from search.running.log_file import keeping_stages
from trainable.collector import paused
from trainable.errors import UserError
from trainable.extras import needing_run
from trainable.imports import import_installed_alone, sharing_distributions
from trainable.processes import ended_by_signals, ending_at_once
from trainable.stages import shown_by, stage, waited_for
from trainable.terminal import StageLines, document, program_name, show_what_can_be_shown, tell, tell_json
from trainable.train_options import Json, TrainOptions
from trainable.tune.causes import in_words, refusal_in

if TYPE_CHECKING:  # a driver imports torch and Ray, which take seconds
    from search.running.driver import Driver
    from search.study import Study

app = typer.Typer(
    name="tunebook",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        tell(f"tunebook {version('tunebook')}")
        raise typer.Exit


@app.callback()
def common(
    wanted: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Find a good training recipe for your image model, on this machine or on a cluster."""
    for line in sharing_distributions():
        tell(f"tunebook: {line}", sys.stderr)


def _driver(options: SearchOptions | ResumeOptions | ExtendOptions | AuditPruningOptions) -> Driver:
    """Return what drives a search, after the imports that take seconds, which are told as a stage."""
    with stage(IMPORTS), paused():
        from search.commands.guests import driver
    return driver(address=options.address, may_fetch=options.download)


def _drive(run: Callable[[], str], address: str | Path, as_json: bool) -> None:
    """Drive a search, and end the command with the exit code of how that ended.

    Where JSON is asked for, it is all that standard output gets.
    """
    with aside(as_json):
        state = run()
    if as_json:
        from search.learning.search import Search
        from search.reporting import terminal

        terminal.show(Search(address), as_json=True)
    exit_with(state)


def _dry_run(drives: Driver, study: Study, as_json: bool) -> None:
    """Prepare a search, which says what it would take; with JSON that is all that standard output gets."""
    with aside(as_json):
        prepared = drives.prepare(study)
    if as_json:
        from search.commands.forecast import forecast_of, forecast_or_reason, forecast_tree

        found = forecast_or_reason(lambda: forecast_of(prepared))  # by what was tried just now
        tell_fields(forecast_tree(found))


@command(app, "tunebook search flowers/ --hours 2")
def search(options: SearchOptions) -> None:
    """Search for the best recipe: train several, stop weak ones early, and write the best to a file."""
    from search.commands.asked import resolved_study
    from search.commands.named import named_study
    from search.record.home import Home

    study = named_study(options)
    if options.again and study.name is None:
        raise UserError("--resume: needs the search's name; give --name NAME")
    if options.address is None:
        bench_of(options)  # a device that is not there is refused by the option's name
    asked = resolved_study(study)
    drives = _driver(options)
    if options.dry_run:
        _dry_run(drives, asked, options.as_json)
        return
    _drive(lambda: drives.search(asked, again=options.again), Home.of(asked).address, options.as_json)


@command(app, "tunebook resume searches/flowers")
def resume(options: ResumeOptions) -> None:
    """Resume an interrupted search from its checkpoints, with the same trials and MLflow runs."""
    drives = _driver(options)
    _drive(lambda: drives.resume(options.folder), options.folder, options.as_json)


@command(app, "tunebook extend searches/flowers --trials 16")
def extend(options: ExtendOptions) -> None:
    """Go on with a search, finished or not, with more trials; finalists are chosen anew at the end."""
    drives = _driver(options)
    _drive(lambda: drives.extend(options.folder, options.trials), options.folder, options.as_json)


@command(app, "tunebook show searches/flowers")
def show(folder: Folder, json: Json = False) -> None:
    """Show a search: its trials, the best one, what stopping early saved."""
    from search.learning.search import Search
    from search.reporting import terminal

    terminal.show(Search(folder), as_json=json)


@command(app, "tunebook report searches/flowers --compare searches/leaves -o both.html")
def report(options: ReportOptions) -> None:
    """Write a search's report: one page, for any browser, that needs no network."""
    from search.commands.report import run_report

    run_report(options)


@command(app, "tunebook open searches/flowers", name="open")
def open_(folder: Folder) -> None:
    """Open a search's report in the browser; it is written first where it is missing or old."""
    from search.commands.report import open_report
    from search.reporting.terminal import say

    open_report(folder, say)


@command(app, "tunebook list", name="list")
def list_(
    storage: Annotated[
        str, typer.Argument(metavar="DIR", help="A folder or URI that holds searches.")
    ] = "searches",
    json: Json = False,
) -> None:
    """List the searches of a storage: how far they are, and their best scores."""
    from search.commands.searches import run_list

    run_list(storage, as_json=json)


@command(app, "tunebook rename searches/flowers tulips")
def rename(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    json: Json = False,
) -> None:
    """Give a search another name: its folder, and its own run in MLflow (trials' runs keep theirs)."""
    from search.commands.searches import run_rename

    run_rename(folder, name, as_json=json)


@command(app, "tunebook delete searches/flowers")
def delete(options: DeleteOptions) -> None:
    """Delete a search with its runs in MLflow, after asking."""
    from search.commands.searches import run_delete

    run_delete(options)


@command(app, "tunebook ui searches/flowers")
def ui(options: UiOptions) -> None:
    """Open MLflow's pages on the search's runs, at http://127.0.0.1:PORT."""
    from search.commands.ui import serve

    raise typer.Exit(serve(options.folder, options.port))


@command(app, "tunebook sync searches/flowers")
def sync(folder: Folder, json: Json = False) -> None:
    """Send to MLflow, and to an object store, what could not be sent while the search ran."""
    with stage(IMPORTS), paused():
        from search.commands.guests import sync as send

    with aside(json):
        complete = send(folder)
    if json:
        tell_fields({"complete": complete})
    raise typer.Exit(0 if complete else FAILED)


@command(app, "tunebook audit searches/flowers --json")
def audit(folder: Folder, json: Json = False) -> None:
    """Compare the journal with MLflow, optuna.db and the checkpoints: is every epoch in each, once?"""
    from search.followers.audit import audit as compare
    from search.learning.search import Search

    found = compare(Search(folder))
    if json:
        tell_json(found.json())
    else:
        tell(str(found))
    raise typer.Exit(FAILED if found.differences else 0)


@command(app, "tunebook audit-pruning searches/flowers --share 0.2")
def audit_pruning(options: AuditPruningOptions) -> None:
    """Train a sample of the stopped trials to their end: would a better one have been among them?"""
    drives = _driver(options)
    _drive(lambda: drives.audit_pruning(options.folder, options.share), options.folder, options.as_json)


@command(app, "tunebook export searches/flowers -o best.yaml --verify 3")
def export(options: ExportOptions) -> None:
    """Write a trial's recipe with its provenance as YAML, or for another program, or for other hardware."""
    from search.commands.export import run_export

    run_export(options)


@command(app, "tunebook bundle searches/flowers -o flowers-model")
def bundle(options: BundleOptions) -> None:
    """Write a trained network, ready to ship: ONNX, torch.export, timm, a script and a model card."""
    from search.commands.bundle import run_bundle

    run_bundle(options)


@command(app, "tunebook refine searches/flowers -o next.yaml")
def refine(options: RefineOptions) -> None:
    """Audit a search that has ended, and write the next study, with a reason for each change."""
    from search.commands.refine import run_refine

    run_refine(options)


@command(app, "tunebook train best.yaml --out model --test")
def train(options: TrainOptions) -> None:
    """Train one recipe, without a search."""
    from search.commands.train import run_train

    raise typer.Exit(run_train(options))


@command(app, "tunebook shrink model --flops 0.4 -o smaller-model")
def shrink(options: ShrinkOptions) -> None:
    """Prune a trained network's channels to a share of its operations, fine-tune it, and say what it lost."""
    from search.commands.shrink import run_shrink

    run_shrink(options)


@command(app, "tunebook explain flowers/ --image-size 128")
def explain(options: ExplainOptions) -> None:
    """Explain every range of a study or a search, or every value of a recipe, with its reason and source.

    For data alone, the default study is explained.
    """
    from search.commands.named import named_input

    named = named_input(options)  # a mistake is answered before the rules are imported
    from search.commands.explain import run_explain

    run_explain(named, options)


@command(app, "tunebook lr-find flowers/ --model timm/resnet18 --out band.html", name="lr-find")
def lr_find(options: LrFindOptions) -> None:
    """Find the band of learning rates at which a recipe's first steps train well."""
    from search.commands.probes import run_lr_find

    raise typer.Exit(0 if run_lr_find(options) else FAILED)


@command(app, "tunebook batch-find best.yaml --device cuda", name="batch-find")
def batch_find(options: BatchFindOptions) -> None:
    """Find the largest micro-batch that fits into memory, and the smallest that is as fast."""
    from search.commands.probes import run_batch_find

    raise typer.Exit(0 if run_batch_find(options) else FAILED)


@command(app, "tunebook backbones flowers/ --size small -o study.yaml --force")
def backbones(options: BackbonesOptions) -> None:
    """Compare pretrained networks on your images, by linear heads on their frozen features."""
    from search.commands.backbones import run_backbones

    run_backbones(options)


@command(app, "tunebook check flowers/ --minutes 2")
def check(options: CheckOptions) -> None:
    """Check data, labels, network and first steps, in a minute, before hours are spent on them.

    With --address check whether each machine of a cluster can train, and nothing else.
    """
    from search.commands.named import named_input, needing_images

    named = needing_images(named_input(options))  # a mistake is answered before the checks are imported
    from search.commands.check import check_cluster, run_check

    address = options.address
    sound = run_check(named, options) if address is None else check_cluster(named, options, address)
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
            command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
            with needing_run(f"{program_name()} {command}".strip()):
                app()
    except UserError as error:
        tell(f"tunebook: {error}", sys.stderr)
        if error.section:
            tell(f"more: {document(f'docs/errors.md#{error.section}')}", sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if (refused := refusal_in(error)) is None:
            raise
        tell(f"tunebook: {in_words(refused)}; make room, and call this again", sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    ending_at_once(main)
