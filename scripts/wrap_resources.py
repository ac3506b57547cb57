"""Run commands with resources of their own, with the flags of Isaac Lab's `wrap_resources.py`.

`python scripts/wrap_resources.py --num_workers 2 --sub_jobs python a.py + python b.py` is
`ditk-ray wrap --num_workers 2 -- "python a.py" "python b.py"`; without any resources each
command has a whole node.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

try:
    import ditk_ray  # noqa: F401
except ModuleNotFoundError:  # a checkout that was shipped to a cluster, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ditk_ray.cli.flags import Parser
from ditk_ray.cli.main import main


def wrap_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `ditk-ray` that these stand for."""
    given, jobs = _parsed(arguments)
    made = ["wrap", *(["--test"] if given.test else [])]
    values = {
        "--num_workers": given.num_workers,
        "--cpu": given.cpu_per_worker,
        "--gpu": given.gpu_per_worker,
        "--memory": given.ram_gb_per_worker and [f"{size}G" for size in given.ram_gb_per_worker],
        "--ray_address": given.ray_address and [given.ray_address],
    }
    if not any(list(values.values())[:4]) and not given.test:
        values["--num_workers"] = ["1"]
    for flag, items in values.items():
        made += [flag, *items] if items else []
    return [*made, *(["--", *jobs] if jobs else [])]


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return our own flags, and the commands as they are: their flags are not ours."""
    words = list(arguments)
    flags = [place for place, word in enumerate(words) if word in ("--sub_jobs", "--sub-jobs")]
    end = flags[0] if flags else len(words)
    return _parser().parse_args(words[: end + 1]), _jobs(words[end + 1 :])


def _parser() -> Parser:
    parser = Parser(description=(__doc__ or "").partition("\n")[0])
    for flag in ("--num_workers", "--cpu_per_worker", "--gpu_per_worker", "--ram_gb_per_worker"):
        parser.add_argument(flag, nargs="+", metavar="N")
    parser.add_argument("--test", action="store_true", help="test that workers are kept apart")
    parser.add_argument("--ray_address", metavar="HOST:PORT", help="the cluster's address")
    parser.add_argument(
        "--sub_jobs", action="store_true", help="the last flag: commands, separated by +"
    )
    return parser


def _jobs(words: Sequence[str]) -> list[str]:
    """Return the commands between the `+` that stand alone; one text in quotes has all of them."""
    if len(words) == 1:
        (text,) = words
        parts = text.split(" + ")  # a + without blanks is part of a word, such as 1e+5
        return [part.strip() for part in parts if part.strip()]
    jobs: list[list[str]] = [[]]
    for word in words:
        if word == "+":
            jobs.append([])
        else:
            jobs[-1].append(word)
    return [shlex.join(job) for job in jobs if job]


if __name__ == "__main__":
    sys.exit(main(wrap_arguments(sys.argv[1:])))
