"""Which files of a sweep become artifacts of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ditk_ray.provenance.snapshot import PROVENANCE_FOLDER
from ditk_ray.tracking.record import RECORD_FILE
from ditk_ray.trial.files import CONFIG_FILE, LOG_FILE, METRICS_FILE

BEST_CONFIG_FILE = "best_config.py"
REPORT_FILE = "report.html"
PARAMS_HISTORY_FILE = "params_history.json"
BEST_CHECKPOINT = "ckpt_best.pth.tar"
MAX_LOG_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Artifact:
    """A file, and the folder among a run's artifacts that it belongs into."""

    file: Path
    place: str | None = None

    @property
    def version(self) -> tuple[int, int]:
        """What changes when the file is written again."""
        found = self.file.stat()
        return found.st_size, found.st_mtime_ns


def sweep_artifacts(folder: Path) -> Iterator[Artifact]:
    """Yield what the parent run keeps of the sweep."""
    for name in (RECORD_FILE, BEST_CONFIG_FILE, REPORT_FILE):
        yield from _if_there(folder / name)
    for file in sorted((folder / PROVENANCE_FOLDER).glob("*")):
        yield from _if_there(file, PROVENANCE_FOLDER)


def trial_artifacts(folder: Path) -> Iterator[Artifact]:
    """Yield what a child run keeps of its trial: as little as tells the whole story."""
    for name in (CONFIG_FILE, METRICS_FILE, PARAMS_HISTORY_FILE):
        yield from _if_there(folder / name)
    for file in sorted(folder.glob("result*")):
        yield from _if_there(file)
    for log in sorted(folder.glob(f"attempt_*/**/{LOG_FILE}")):
        # One that is larger than any person reads stays where it is.
        if log.is_file() and log.stat().st_size <= MAX_LOG_BYTES:
            yield from _if_there(log, str(log.parent.relative_to(folder)))


def best_checkpoints(folder: Path) -> Iterator[Artifact]:
    """Yield the checkpoint that DI-engine saved at a trial's best evaluation, for each seed."""
    newest: dict[str, Path] = {}
    found = folder.glob(f"attempt_*/**/{BEST_CHECKPOINT}")
    for file in sorted((file for file in found if not file.is_symlink()), key=_written):
        inside = file.relative_to(folder).parts[1]
        newest[inside if inside.startswith("seed_") else ""] = file
    for seed, file in newest.items():
        yield Artifact(file, f"checkpoint/{seed}" if seed else "checkpoint")


def _if_there(file: Path, place: str | None = None) -> Iterator[Artifact]:
    # A link may lead anywhere, and a trial runs code that is not ours.
    if file.is_file() and not file.is_symlink():
        yield Artifact(file, place)


def _written(file: Path) -> float:
    return file.stat().st_mtime
