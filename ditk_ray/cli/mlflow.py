"""Moving records in and out of MLflow: `ditk-ray sync` and `ditk-ray mlflow-to-tensorboard`."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ditk_ray.cli.flags import Format, StorageCommand, SweepCommand, format_option
from ditk_ray.cli.output import note, print_value
from ditk_ray.config.options import option, positive
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.record.sweep_folder import find_sweep
from ditk_ray.tracking.delivery_process import sync
from ditk_ray.tracking.recording import NOWHERE, calm_mlflow, chosen_uri, embedded_uri, resolved_uri

if TYPE_CHECKING:
    from ditk_ray.tracking.tensorboard import RunExport

_SPEAK_SECONDS = 5.0
"""How often an export says how far it is."""


class Sync(SweepCommand):
    """Send to MLflow what a sweep could not while it ran, or record it in another store.

      ditk-ray sync my_sweep                                   send what its store missed
      ditk-ray sync my_sweep --mlflow_uri http://host:5000     record it there, too

    Doing it again changes nothing.
    """

    mlflow_uri: str | None = option("a store other than the sweep's own", metavar="URI")
    format: Format = format_option()

    def run(self) -> int:
        folder = find_sweep(self.sweep, self.storage_path)
        uri = chosen_uri(self.mlflow_uri) if self.mlflow_uri else None
        if uri == NOWHERE:
            raise BadConfigError(Problem("--mlflow_uri none", "is not a store to send records to"))
        calm_mlflow()
        state = sync(folder, uri, lambda share: note(f"sent {share:.0%}"))
        where = mask_text(resolved_uri(state.uri, folder))
        if self.format == "json":
            shown = {"mlflow_uri": where, "runs": len(state.runs), "refused": state.refused}
            print_value({"sweep": folder.name, **shown, "files_missing": state.files_missing})
        else:
            how_much = "not all" if state.files_missing else "all"
            print(f"{how_much} of {folder.name} is in {where}: {len(state.runs)} runs")
        if state.refused:
            note(f"MLflow refused {state.refused} records")
        if state.files_missing:
            note(f"files of {len(state.files_missing)} runs are missing: run it again to send them")
        return 1 if state.refused or state.files_missing else 0


class Export(StorageCommand):
    r"""Write the runs of an MLflow experiment as TensorBoard event files.

      ditk-ray mlflow-to-tensorboard --uri http://HOST:5000 --experiment-name walker \
          --download-dir tb
      tensorboard --logdir tb

    Run it again after Ctrl-C or a failure, or to fetch what is new: runs that have ended and are
    complete are not downloaded again.
    Exit code: 0 if every run is complete, 1 if one failed or there are none, 2 if the input
    is wrong, 130 after Ctrl-C.
    """

    uri: str | None = option(
        "the MLflow server or store (default: MLFLOW_TRACKING_URI, "
        "else the store in the results' folder)"
    )
    experiment_name: str = option("experiment of the runs", metavar="NAME", required=True)
    download_dir: Path = option("where the files go", metavar="DIR", required=True)
    workers: int = option(
        "runs that are downloaded at once (default: %(default)s)", 4, metavar="N", parse=positive
    )
    format: Format = format_option()

    def run(self) -> int:
        calm_mlflow()
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # what fails in the end is said
        from ditk_ray.tracking.mlflow_store import StoredExperiment  # MLflow takes seconds

        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or embedded_uri(self.storage_path)
        experiment = StoredExperiment(uri, self.experiment_name)
        # tensorboardX imports torch where that is installed: after what may be a mistake.
        from ditk_ray.tracking.tensorboard import export_experiment

        total, done, spoke = len(experiment.runs), list["RunExport"](), time.monotonic()

        def take(result: RunExport) -> None:
            nonlocal spoke
            done.append(result)
            if time.monotonic() - spoke > _SPEAK_SECONDS:
                spoke = time.monotonic()
                note(f"{len(done)} of {total} runs")

        try:
            export_experiment(experiment, self.download_dir, self.workers, take)
        except (KeyboardInterrupt, DitkRayError):
            note(f"{len(done)} of {total} runs are done; run it again for the rest")
            raise
        _print_summary(self, done)
        return 1 if any(item.outcome == "failed" for item in done) else 0


def _print_summary(given: Export, done: list[RunExport]) -> None:
    counts = Counter(str(item.outcome) for item in done)
    points = sum(item.points for item in done)
    if given.format == "json":
        runs = [vars(item) for item in done]
        summary = {"experiment": given.experiment_name, "download_dir": given.download_dir}
        print_value({**summary, "counts": counts, "points": points, "runs": runs})
        return
    for item in done:
        if item.error:
            print(f"{item.name} ({item.run_id}) failed: {item.error}")
    print(
        f"{given.experiment_name}: {len(done)} runs with {points} points: "
        f"{counts['written']} written, {counts['kept']} were complete already, "
        f"{counts['failed']} failed"
    )
    print(f"look at them with: tensorboard --logdir {shlex.quote(str(given.download_dir))}")
