"""Defines the command line `tunebook`. Commands import what they need when called, so that --help is fast."""

from __future__ import annotations

import sys

if __name__ == "__main__":  # called as `python -m search`
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder where it runs: what follows is imported from what is installed
    from trainable.imports import import_installed_alone

    import_installed_alone()

from typing import Annotated

import typer

from search.commands import search_commands
from search.commands.options import (
    FAILED,
    IMPORTS,
    INTERRUPTED,
    BackbonesOptions,
    BatchFindOptions,
    CheckOptions,
    ClusterAddress,
    Download,
    ExplainOptions,
    Folder,
    LrFindOptions,
    SearchOptions,
    ShrinkOptions,
    TrainOptions,
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
from trainable.tune.causes import in_words, refusal_in

app = typer.Typer(
    name="tunebook",
    help="Find the best training recipe of an image model on a Ray cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@command(app)
def search(options: SearchOptions) -> None:
    """Search for the best recipe: sample, train, prune, track and export."""
    with stage(IMPORTS), paused():
        from search.commands.guests import driver, resolved_study
    from search.study import study_asked

    study = study_asked(options.study, options.flags, options.settings or ())
    if options.again and study.name is None:
        raise UserError("--resume: needs the search's name; give --name NAME")
    drives = driver(address=options.address, may_fetch=options.download)
    exit_with(drives.search(resolved_study(study), again=options.again))


@app.command()
def resume(
    folder: Folder,
    address: ClusterAddress = None,
    download: Download = False,
) -> None:
    """Resume an interrupted search from its checkpoints, with the same trials and MLflow runs."""
    with stage(IMPORTS), paused():
        from search.commands.guests import driver

    exit_with(driver(address=address, may_fetch=download).resume(folder))


@app.command()
def extend(
    folder: Folder,
    trials: Annotated[int, typer.Option(help="How many trials more.", min=1)],
    address: ClusterAddress = None,
    download: Download = False,
) -> None:
    """Go on with a search, finished or not, with more trials; finalists are chosen anew at the end."""
    with stage(IMPORTS), paused():
        from search.commands.guests import driver

    exit_with(driver(address=address, may_fetch=download).extend(folder, trials))


search_commands.add_to(app)


@command(app)
def train(options: TrainOptions) -> None:
    """Train one recipe, without a search."""
    from search.results.teachers import recipe_with_teacher
    from trainable.__main__ import train_file

    code = train_file(
        options.recipe,
        prepared=recipe_with_teacher,
        settings=options.settings or (),
        data=options.data,
        out=options.out,
        test=options.test,
        predict=options.predict,
        download=options.download,
        as_json=options.as_json,
        debug=options.debug or (),
    )
    raise typer.Exit(code)


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


cli.add_to(app)


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
