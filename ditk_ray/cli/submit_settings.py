"""What the jobs of a `ditk-ray submit` have in common: their code, variables and resources."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ditk_ray.cli.object_output import tell
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from ditk_ray.cluster.jobs.job_request import JobSettings


def job_settings(given: argparse.Namespace) -> JobSettings:
    """Gather the code and say how much it is; nothing is sent yet."""
    from ditk_ray.cluster.jobs.code_files import find_code
    from ditk_ray.cluster.jobs.code_package import pack_code, pack_this_package
    from ditk_ray.cluster.jobs.job_request import JobSettings
    from ditk_ray.provenance.origin import describe_origin

    pairs = {"env": _variables(given.env), "metadata": _pairs("metadata", given.metadata)}
    memory = _memory(given.entrypoint_memory)
    code = find_code(given.working_dir)
    for note in code.notes:
        tell(note)
    package = pack_code(code, describe_origin(code.root))
    tell(f"shipping {code} ({package.size} packed)")
    return JobSettings(
        package,
        (pack_this_package(),),
        **pairs,
        cpus=given.entrypoint_cpus,
        gpus=given.entrypoint_gpus,
        memory=memory,
    )


def _variables(given: Sequence[str]) -> dict[str, str]:
    """Return the variables of a job; those that are only named have the values of this process."""
    inherited = [text for text in given if text and "=" not in text]
    if unset := [name for name in inherited if name not in os.environ]:
        hint = "set it, or write --env NAME=VALUE"
        raise BadConfigError(Problem(f"--env {name}", "is not set here", hint) for name in unset)
    named = _pairs("env", [text for text in given if text not in inherited])
    return named | {name: os.environ[name] for name in inherited}


def _pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    wrong = [text for text in given if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise BadConfigError(Problem(f"--{flag} {text}", "has to be NAME=VALUE") for text in wrong)
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def _memory(text: str | None) -> int | None:
    from ditk_ray.config.quantities import parse_bytes

    try:
        return parse_bytes(text) if text is not None else None
    except ValueError as error:
        raise BadConfigError(Problem(f"--entrypoint_memory {text}", str(error))) from error
