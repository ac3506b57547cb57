"""The rooms of ARCHITECTURE.md: who may import whom, and who owns what is heavy."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "ditk_ray"

# From the ground up: a room may import those before it, and itself.
ROOMS = [
    "errors",
    "util",
    "config",
    "provenance",
    "execution",
    "kube",
    "trial",
    "dijob",
    "search",
    "ray_cluster",
    "record",
    "tracking",
    "submit",
    "kuberay",
    "report",
    "sweep",
    "cli",
]

OWNERS = {
    "ding": {"execution", "trial"},
    "torch": {"execution", "trial", "dijob"},
    "mlflow": {"tracking"},
    "plotly": {"report"},
    "optuna": {"report", "search"},
    "hyperopt": {"search"},
    "hpbandster": {"search"},
    "nevergrad": {"search"},
    "ax": {"search"},
    "threadpoolctl": {"search"},
    "jinja2": {"report"},
    "tensorboardX": {"tracking"},
    "rich": {"cli"},
    "pydantic": {"config", "kuberay", "ray_cluster", "submit", "kube", "dijob"},
    "yaml": {"kube", "dijob"},
    "kubernetes": {"kube"},
    "aiohttp": {"submit", "kube"},
}
HEAVY = ("ray", "torch", "ding", "mlflow", "kubernetes", "pandas", "numpy", "pydantic", "rich")
HEAVY += ("plotly", "optuna", "jinja2", "tensorboard", "tensorboardX", "sqlalchemy", "aiohttp")


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_modules_import_only_rooms_below_their_own_and_heavy_packages_only_where_owned() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        if room == "":  # the package itself re-exports lazily
            continue
        allowed = {"", *ROOMS[: ROOMS.index(room) + 1]}
        for name in imports(path):
            first, _, rest = name.partition(".")
            is_ours = first == "ditk_ray" and rest
            if (is_ours and rest.partition(".")[0] not in allowed) or (
                room not in OWNERS.get(first, {room})
            ):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def loaded_by(code: str) -> set[str]:
    """Return the top-level packages that a fresh interpreter has after running `code`."""
    text = f"{code}\nimport sys; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(shown.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import ditk_ray",
        "from ditk_ray.cli.main import build_parser; build_parser().format_help()",
        "from ditk_ray.config.job_files import list_jobs; assert list_jobs()",
    ],
)
def test_importing_the_package_asking_for_help_and_listing_load_nothing_heavy(code: str) -> None:
    assert loaded_by(code).isdisjoint(HEAVY)


def test_the_actor_loads_neither_torch_nor_ding() -> None:
    assert loaded_by("import ditk_ray.trial.trainable").isdisjoint({"torch", "ding", "mlflow"})


def test_help_needs_less_than_half_a_second_of_a_processor() -> None:
    command = [str(Path(sys.executable).with_name("ditk-ray")), "--help"]
    times = []
    for _ in range(3):
        before = _seconds_of_children()
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(_seconds_of_children() - before)
        assert "tune" in shown.stdout
    assert min(times) < 0.5


def _seconds_of_children() -> float:
    """Return what processes that ended have computed: others on the machine do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
