"""The workers that the options `--jobs` and `--dask` of a tool ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nnet3_training.workers import Workers

JOBS = click.option(
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="COUNT",
    help="Processes that compute shards of the table, each entry by itself; 0 for none.",
)

DASK = click.option(
    "--dask",
    metavar="ADDRESS",
    help="Work on the Dask cluster with this scheduler; 'local' for one of --jobs processes.",
)


@contextlib.contextmanager
def chosen_workers(jobs: int, dask: str | None) -> Iterator[Workers]:
    """A context with `jobs` processes, or with a Dask cluster.

    Raises:
        click.ClickException: Dask is not installed, or no scheduler answers.
    """
    # Imported here: most runs of most tools need no workers.
    from nnet3_training.workers import DaskWorkers, Processes

    if dask is None:
        with Processes(jobs) as processes:
            yield processes
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise click.ClickException(
            f"--dask needs Dask's scheduler: pip install distributed ({error})"
        ) from error
    with contextlib.ExitStack() as stack:
        address = dask
        if dask == "local":
            address = stack.enter_context(
                LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
            )
        try:
            client = stack.enter_context(Client(address))
        except (OSError, ValueError) as error:
            raise click.ClickException(
                f"--dask: cannot reach a scheduler at '{dask}': {error}"
            ) from error
        yield DaskWorkers(client)
