"""Programs that fail, hang or print without end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.provenance import git as provenance_git
from ditk_ray.provenance.git import (
    CommandFailedError,
    Git,
    find_root,
    read_repository,
    run_limited,
)
from tests.processes import PATIENCE, processes_in, wait_until
from tests.provenance.repositories import add, git, new_repository, stand_in


def test_what_a_program_prints_is_returned() -> None:
    assert run_limited(["echo", "hello"], 100, 10) == b"hello\n"


def test_what_is_beyond_the_limit_is_not_kept() -> None:
    assert run_limited(["printf", "%0100d", "0"], 10, 10) == b"0" * 10


def test_errors_without_end_do_not_block_it() -> None:
    code = "import sys; sys.stderr.write('e' * 10**6); print('done')"

    assert run_limited([sys.executable, "-c", code], 100, 30) == b"done\n"


def test_a_failure_is_told_by_the_first_line_of_its_errors() -> None:
    with pytest.raises(CommandFailedError, match=r"^first$") as caught:
        run_limited(["sh", "-c", "echo first >&2; echo second >&2; exit 3"], 100, 10)

    assert caught.value.code == 3


def test_a_silent_failure_is_told_by_its_code() -> None:
    with pytest.raises(CommandFailedError, match="false exited with code 1"):
        run_limited(["false"], 100, 10)


@pytest.mark.parametrize("command", [["no-such-program"], ["/"], ["a\0b"]])
def test_a_program_that_cannot_be_run_is_a_failure(command: list[str]) -> None:
    with pytest.raises(CommandFailedError, match="cannot be run"):
        run_limited(command, 100, 10)


def test_a_program_that_hangs_is_ended() -> None:
    begun = time.monotonic()

    with pytest.raises(CommandFailedError, match="sleep took longer than"):
        run_limited(["sleep", "1000"], 100, 0.5)

    assert time.monotonic() - begun < 10 * PATIENCE


def test_what_a_program_that_hangs_has_started_is_ended_with_it(tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError, match="sh took longer than"):
        run_limited(["sh", "-c", "sleep 1000 & wait"], 100, 0.5, tmp_path)

    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")


def test_a_program_that_cannot_be_ended_is_waited_for_only_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: left.append(pid))
    monkeypatch.setattr(provenance_git, "_END_SECONDS", 0.1)
    begun = time.monotonic()

    with pytest.raises(CommandFailedError, match="sleep took longer than"):
        run_limited(["sleep", "30"], 100, 0.1)

    assert time.monotonic() - begun < 5 * PATIENCE
    os.kill(left[0], signal.SIGKILL)


def test_a_program_that_prints_without_end_is_ended_at_the_limit(tmp_path: Path) -> None:
    assert run_limited(["yes"], 10, 10, tmp_path) == b"y\n" * 5
    assert not processes_in(tmp_path)


def test_a_program_whose_output_has_no_place_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)

    with pytest.raises(CommandFailedError, match=r"echo cannot be run: .*No space left"):
        run_limited(["echo"], 100, 10)


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repo", {"a.py": "a = 1\n", "b.py": "b = 1\n"})


def read(root: Path) -> tuple[dict[str, Any], str]:
    return read_repository(Git(), root)


def test_a_clean_repository_is_its_commit_and_branch(repo: Path) -> None:
    state, diff = read(repo)

    assert state == {
        "root": str(repo),
        "commit": git(repo, "rev-parse", "HEAD"),
        "branch": "main",
        "remotes": {},
        "is_dirty": False,
        "untracked": [],
        "untracked_count": 0,
        "secret_files": [],
        "diff": None,
        "notes": [],
    }
    assert diff == ""


def test_git_looks_no_further_than_the_user_says(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repo / "folder"
    folder.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repo))

    with pytest.raises(CommandFailedError, match="not a git repository"):
        find_root(Git(), folder)


def test_a_detached_head_has_no_branch(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "--detach")

    state, _ = read(repo)

    assert state["branch"] is None
    assert state["commit"] == git(repo, "rev-parse", "HEAD")


def test_staged_and_unstaged_changes_are_in_one_diff(repo: Path) -> None:
    add(repo, {"a.py": "a = 2\n"})
    (repo / "b.py").write_text("b = 2\n")

    state, diff = read(repo)

    assert state["is_dirty"]
    assert diff.startswith("diff --git a/a.py b/a.py\n")
    assert "+a = 2\n" in diff
    assert "+b = 2\n" in diff


def test_the_diff_can_be_applied_to_the_commit(repo: Path, tmp_path: Path) -> None:
    add(repo, {"a.py": "a = 2\n", "new/ä b.py": "new\n"})
    (repo / "a.py").write_bytes(b"a = 3\r\n\xff\n no newline")
    (repo / "b.py").unlink()
    _, diff = read(repo)
    patch = tmp_path / "patch"
    patch.write_bytes(diff.encode("utf-8", "surrogateescape"))
    git(tmp_path, "clone", "--quiet", str(repo), "copy")

    git(tmp_path / "copy", "apply", str(patch))

    copied = tmp_path / "copy"
    assert (copied / "a.py").read_bytes() == (repo / "a.py").read_bytes()
    assert (copied / "new/ä b.py").read_text() == "new\n"
    assert not (copied / "b.py").exists()


def test_a_repository_without_a_commit_is_described(tmp_path: Path) -> None:
    repo = new_repository(tmp_path / "repo")
    add(repo, {"a.py": "a = 1\n"})

    state, diff = read(repo)

    assert (state["commit"], state["branch"], state["is_dirty"]) == (None, "main", True)
    assert state["notes"] == ["there is no commit yet"]
    assert "+a = 1" in diff


def test_remotes_are_named_without_their_credentials(repo: Path) -> None:
    git(repo, "remote", "add", "origin", "https://me:hunter2@example.org/a.git")
    git(repo, "remote", "add", "other", "git@example.org:a.git")

    state, _ = read(repo)

    assert state["remotes"] == {
        "origin": "https://me:***@example.org/a.git",
        "other": "git@example.org:a.git",
    }


def test_untracked_files_are_named_up_to_a_number_and_counted(repo: Path) -> None:
    for number in range(provenance_git.MAX_UNTRACKED + 5):
        (repo / f"new_{number:03}").touch()
    (repo / "folder").mkdir()
    (repo / "folder/file").touch()

    state, diff = read(repo)

    assert state["untracked_count"] == provenance_git.MAX_UNTRACKED + 6
    assert len(state["untracked"]) == provenance_git.MAX_UNTRACKED
    assert state["untracked"][:2] == ["folder/", "new_000"]
    assert not state["is_dirty"]
    assert diff == ""


def test_more_files_than_are_counted_are_noted(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance_git, "_MAX_ANSWER", 20)
    for number in range(5):
        (repo / f"new_{number}").touch()

    state, _ = read(repo)

    assert state["untracked_count"] == 2
    assert state["notes"] == ["there are more changed and untracked files than were counted"]


def test_names_that_are_no_text_are_written_with_escapes(repo: Path) -> None:
    (repo / os.fsdecode(b"caf\xe9")).touch()
    (repo / "two\nlines").touch()
    (repo / os.fsdecode(b"tracked\xff")).write_text("x\n")
    git(repo, "add", "--", os.fsdecode(b"tracked\xff"))

    state, diff = read(repo)

    assert state["untracked"] == ["caf\\xe9", "two\nlines"]
    assert 'diff --git "a/tracked\\377" "b/tracked\\377"' in diff


def test_a_root_that_is_no_text_is_read(tmp_path: Path) -> None:
    repo = new_repository(tmp_path / os.fsdecode(b"caf\xe9"), {"a.py": "a = 1\n"})
    (repo / "a.py").write_text("a = 2\n")

    root = find_root(Git(), repo / "a.py")
    state, diff = read(root)

    assert root == repo
    assert state["root"].isprintable()
    assert "+a = 2" in diff
    diff.encode("utf-8", "surrogateescape")


def test_binary_files_are_only_named(repo: Path) -> None:
    (repo / "a.bin").write_bytes(bytes(range(256)) * 10)
    git(repo, "add", "a.bin")

    _, diff = read(repo)

    assert "Binary files /dev/null and b/a.bin differ\n" in diff
    assert len(diff) < 300


def test_a_large_diff_is_cut_at_a_line_and_says_so(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance_git, "MAX_DIFF", 1000)
    (repo / "a.py").write_text("".join(f"line_{number} = 1\n" for number in range(1000)))
    whole = git(repo, "diff") + "\n"

    _, diff = read(repo)

    *lines, last = diff.splitlines(keepends=True)
    kept = "".join(lines)
    assert whole.startswith(kept)
    assert 900 < len(kept) <= 1000
    assert last == "# what follows the first 1000 bytes was left out\n"


def test_secrets_in_a_diff_are_masked(repo: Path) -> None:
    (repo / "a.py").write_text('API_KEY = "abc"\nmax_tokens = 512\n')

    _, diff = read(repo)

    assert '+API_KEY = "***"\n+max_tokens = 512\n' in diff


def test_files_of_secrets_are_named_and_left_out(repo: Path) -> None:
    add(repo, {".env": "X=correcthorse\n", "deep/key.pem": "abc\n", "c.py": "c = 1\n"})
    add(repo, {"ä/id_rsa": "abc\n", ".env.example": "X=\n", "credentials.json": "{}\n"})

    state, diff = read(repo)

    left_out = {".env", "credentials.json", "deep/key.pem", "\\303\\244/id_rsa"}
    assert set(state["secret_files"]) == left_out
    for name in left_out:
        assert f"# {name}: left out" in diff
    assert "correcthorse" not in diff
    assert "abc" not in diff
    assert "+c = 1" in diff
    assert "b/.env.example" in diff


def index_of(repo: Path) -> tuple[bytes, int]:
    index = repo / ".git/index"
    return index.read_bytes(), index.stat().st_mtime_ns


def test_nothing_in_the_repository_is_changed(repo: Path) -> None:
    (repo / "b.py").write_text("b = 2\n")
    os.utime(repo / "a.py", (1, 1))  # git would like to note in the index that it is the same
    before = index_of(repo)
    files = sorted(repo.rglob("*"))

    state, diff = read(repo)

    assert index_of(repo) == before
    assert sorted(repo.rglob("*")) == files
    assert "a.py" not in diff
    assert state["is_dirty"]


def test_no_program_that_a_repository_names_is_started(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "was_run"
    programs = stand_in(tmp_path / "programs", "program", f"touch {marker}; cat $1")
    program = str(programs / "program")
    add(repo, {".gitattributes": "*.py diff=own\n"})
    for setting in ("diff.external", "diff.own.textconv", "diff.own.command", "core.fsmonitor"):
        git(repo, "config", setting, program)
    for setting in ("core.pager", "pager.diff", "pager.status"):
        git(repo, "config", setting, program)
    for hook in ("post-index-change", "post-checkout", "pre-commit"):
        stand_in(repo / ".git/hooks", hook, f"touch {marker}")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", program)
    (repo / "a.py").write_text("a = 2\n")

    _, diff = read(repo)

    assert "+a = 2" in diff
    assert not marker.exists()


def test_settings_do_not_change_what_a_diff_looks_like(repo: Path) -> None:
    add(repo, {"lines": "1\n2\n3\n4\n", "ä": "a\n", "old": "some text\n" * 10})
    git(repo, "commit", "--quiet", "--message=second")
    (repo / "lines").write_text("1\n2\nchanged\n4\n")
    (repo / "ä").write_text("b\n")
    git(repo, "mv", "old", "new")
    _, plain = read(repo)
    settings = {
        "color.ui": "always",
        "core.quotePath": "false",
        "diff.context": "0",
        "diff.mnemonicPrefix": "true",
        "diff.noprefix": "true",
        "diff.renames": "copies",
        "status.showUntrackedFiles": "no",
    }
    for name, value in settings.items():
        git(repo, "config", name, value)
    (repo / "untracked").touch()

    state, diff = read(repo)

    assert diff == plain
    assert "rename" not in plain
    assert state["untracked"] == ["untracked"]


def test_variables_of_a_hook_do_not_point_git_elsewhere(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_repository(tmp_path / "other", {"c.py": "c = 1\n"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))

    assert find_root(Git(), repo / "a.py") == repo
    assert not read(repo)[0]["is_dirty"]


def test_files_in_conflict_are_shown(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "-b", "other")
    (repo / "a.py").write_text("a = 'theirs'\n")
    git(repo, "commit", "--quiet", "--all", "--message=theirs")
    git(repo, "checkout", "--quiet", "main")
    (repo / "a.py").write_text("a = 'ours'\n")
    git(repo, "commit", "--quiet", "--all", "--message=ours")
    with pytest.raises(Exception, match="merge"):
        git(repo, "merge", "other")

    state, diff = read(repo)

    assert state["is_dirty"]
    assert "+a = 'theirs'" in diff


def test_a_work_tree_of_its_own_is_a_repository(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))

    root = find_root(Git(), tmp_path / "side/a.py")

    assert root == tmp_path / "side"
    assert read(root)[0]["branch"] == "side"


def test_the_repository_is_found_from_a_file_a_folder_and_a_link(
    repo: Path, tmp_path: Path
) -> None:
    (repo / "deep").mkdir()
    (tmp_path / "link").symlink_to(repo / "a.py")

    for place in (repo, repo / "deep", repo / "a.py", tmp_path / "link"):
        assert find_root(Git(), place) == repo


def no_root(place: Path) -> str:
    with pytest.raises(CommandFailedError) as caught:
        find_root(Git(), place)
    return str(caught.value)


def test_a_place_outside_of_any_repository_is_told(tmp_path: Path) -> None:
    assert "not a git repository" in no_root(tmp_path)
    assert no_root(tmp_path / "missing") == "it does not exist"


def test_a_place_that_its_repository_ignores_is_told(repo: Path) -> None:
    add(repo, {".gitignore": "venv/\n", "venv/tracked.py": "x = 1\n"})
    (repo / "venv/package.py").touch()

    assert no_root(repo / "venv/package.py") == f"it is ignored by the repository at {repo}"
    assert find_root(Git(), repo / "venv/tracked.py") == repo


def test_a_bare_repository_is_told(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "bare")

    assert "work tree" in no_root(tmp_path / "bare")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_repository_of_someone_else_is_told(repo: Path) -> None:
    os.chown(repo, 12345, 12345)
    os.chown(repo / ".git", 12345, 12345)

    assert "dubious ownership" in no_root(repo)


def test_a_repository_without_a_head_is_told(repo: Path) -> None:
    (repo / ".git/HEAD").write_text("garbage\n")

    assert "not a git repository" in no_root(repo)


@pytest.mark.parametrize("broken", ["index", "refs/heads/main", "config"])
def test_what_is_broken_in_a_repository_becomes_a_note(repo: Path, broken: str) -> None:
    (repo / ".git" / broken).write_bytes(b"\xff garbage")

    state, _ = read(repo)

    assert state["notes"]
    assert state["root"] == str(repo)


def test_a_repository_without_its_objects_becomes_notes(repo: Path) -> None:
    (repo / "a.py").write_text("a = 2\n")
    shutil.rmtree(repo / ".git/objects")
    (repo / ".git/objects").mkdir()

    state, _ = read(repo)

    assert state["notes"]


def test_a_missing_git_is_told(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repo))

    assert no_root(repo) == "git is not installed"
    assert read(repo)[0]["notes"] == ["git is not installed"]


def test_a_git_that_hangs_is_waited_for_only_once(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(stand_in(tmp_path / "bin", "git", "exec /bin/sleep 100")))
    begun = time.monotonic()
    state, diff = read_repository(Git(seconds=0.5), repo)

    assert diff == ""
    assert time.monotonic() - begun < 5 * PATIENCE
    assert state["notes"] == ["git took longer than 0.5 s"]
