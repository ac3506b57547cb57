"""Send jobs to Ray clusters, by the flags that Isaac Lab's script of this name has.

    python scripts/submit_job.py --aggregate_jobs wrap_resources.py --test
    python scripts/submit_job.py --aggregate_jobs tune.py --cfg_class A "*" tune.py --cfg_class B

Each job is a script of this folder with its arguments (`tuner.py` is `tune.py` here); a bare *
separates jobs. The clusters are those of ~/.cluster_config. `ditk-ray submit` does the same
for any command; its options go before --aggregate_jobs.
"""

import argparse
import shlex
import sys
from pathlib import Path

try:
    import ditk_ray  # noqa: F401
except ModuleNotFoundError:  # a checkout that was shipped to a cluster, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ditk_ray.cli.flags import Parser, add_flags, read_flags
from ditk_ray.cli.main import run_command
from ditk_ray.cli.submit import SendOptions, submit
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.submit.jobs import split_words

_ROOT = Path(__file__).resolve().parents[1]
_OTHER_NAMES = {"tuner.py": "tune.py"}


def job_of(words: list[str]) -> list[str]:
    """Return the command of a job: a script of this folder, or whatever else it names."""
    if len(words) == 1:  # the whole job in one quoted word
        try:
            words = shlex.split(words[0])
        except ValueError as error:
            raise BadConfigError(Problem(f"--aggregate_jobs {words[0]}", str(error))) from None
    if not words:
        raise BadConfigError(Problem("--aggregate_jobs", "has an empty job"))
    script = _OTHER_NAMES.get(words[0], words[0])
    if "/" not in script and (_ROOT / "scripts" / script).is_file():
        return ["python", f"scripts/{script}", *words[1:]]
    return ["python", *words] if script.endswith(".py") else words


def _parsed() -> argparse.Namespace:
    parser = Parser(description=__doc__)
    add_flags(parser, SendOptions)
    parser.set_defaults(working_dir=_ROOT)
    parser.add_argument(
        "--aggregate_jobs", metavar="JOB", nargs=argparse.REMAINDER, required=True, help="jobs"
    )
    given = sys.argv[1:]
    flags = ("--aggregate_jobs", "--aggregate-jobs")
    end = next((place for place, word in enumerate(given) if word in flags), len(given))
    parsed = parser.parse_args(given[: end + 1])
    parsed.aggregate_jobs = given[end + 1 :]  # as they are: their flags are not ours
    return parsed


def _submit(given: argparse.Namespace) -> int:
    jobs = [job_of(words) for words in split_words(given.aggregate_jobs, "*")]
    return submit(read_flags(SendOptions, given), jobs)


if __name__ == "__main__":
    sys.exit(run_command(_submit, _parsed()))
