"""What is shipped of a folder, and how it is packed."""

from __future__ import annotations

import io
import os
import random
import zipfile

import pytest

from ditk_ray.errors import BadConfigError
from ditk_ray.submit import code as code_package
from ditk_ray.submit.code import pack_folder, pack_this_package
from tests.provenance.repositories import new_repository


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"this is {name}")


def unpacked(package):
    with zipfile.ZipFile(io.BytesIO(package.data)) as found:
        return {name: found.read(name).decode() for name in found.namelist()}


def shipped(folder):
    return tuple(unpacked(pack_folder(folder, {})))


def test_a_repository_is_shipped_by_gits_rules(tmp_path):
    root = new_repository(tmp_path / "repo", {"a.py": "a", ".gitignore": "*.log\n/big/\n"})
    write(root, "new.py", "x.log", "big/data", "sub/b.py", "ditk_ray_results/s/sweep.json")
    new_repository(root / "inner", {"c.py": "c", "d.py": "d"})
    (root / "inner/d.py").unlink()

    names = shipped(root)

    assert names == (".gitignore", "a.py", "inner/c.py", "new.py", "sub/b.py")
    assert shipped(root / "sub") == ("b.py",)


def test_a_folder_that_became_a_file_is_shipped_as_that(tmp_path):
    root = new_repository(tmp_path / "repo", {"data/a.csv": "a", "b.py": "b"})
    (root / "data/a.csv").unlink()
    (root / "data").rmdir()
    write(root, "data")

    assert shipped(root) == ("b.py", "data")


def test_what_git_ignores_is_not_shipped_when_git_cannot_be_asked(tmp_path, monkeypatch):
    root = new_repository(tmp_path / "repo", {"a.py": "a", ".gitignore": ".env\n"})
    write(root, ".env")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadConfigError, match="git is not installed"):
        pack_folder(root, {})


def test_programs_stay_programs(tmp_path):
    write(tmp_path, "run.sh", "a.py")
    (tmp_path / "run.sh").chmod(0o755)
    package = pack_folder(tmp_path, {})
    with zipfile.ZipFile(io.BytesIO(package.data)) as found:
        modes = {one.filename: one.external_attr >> 16 for one in found.infolist()}
    assert modes == {"run.sh": 0o755, "a.py": 0o644}


def test_elsewhere_what_tools_leave_behind_stays(tmp_path):
    write(
        tmp_path, "a.py", "lib/b.py", "__pycache__/a.pyc", ".venv/x", "ditk_ray_results/y", "c.pyc"
    )
    (tmp_path / "empty").mkdir()
    assert shipped(tmp_path) == ("a.py", "lib/b.py")


@pytest.mark.parametrize("is_repository", [True, False])
def test_rayignore_holds_everywhere_and_for_what_git_knows(tmp_path, is_repository):
    root = tmp_path / "root"
    if is_repository:
        new_repository(root, {"tracked.bin": "x"})
    write(root, "a.py", "data/x", "sub/data/x", "sub/keep.csv", "sub/b.csv", "c.csv")
    (root / ".rayignore").write_text("/data\n*.bin\n")
    (root / "sub/.rayignore").write_text("*.csv\n!keep.csv\n")

    names = set(shipped(root))

    assert names == {".rayignore", "a.py", "c.csv"} | {
        f"sub/{name}" for name in (".rayignore", "data/x", "keep.csv")
    }


def test_a_rayignore_that_git_ignores_holds_all_the_same(tmp_path):
    root = new_repository(tmp_path / "root", {".gitignore": ".rayignore\n"})
    write(root, "a.py", "secret.key", "sub/b.py", "sub/b.csv")
    (root / ".rayignore").write_text("*.key\n")
    (root / "sub/.rayignore").write_text("*.csv\n")
    assert set(shipped(root)) == {".gitignore", "a.py", "sub/b.py"}


@pytest.mark.parametrize("is_repository", [True, False])
def test_links_to_files_are_shipped_as_those_and_others_are_told(tmp_path, is_repository):
    root = tmp_path / "root"
    write(tmp_path, "elsewhere/huge", "file")
    if is_repository:
        new_repository(root)
    write(root, "real/a.py")
    (root / "to_file").symlink_to(tmp_path / "file")
    (root / "to_inner").symlink_to("real")
    (root / "to_outer").symlink_to(tmp_path / "elsewhere")
    (root / "to_nothing").symlink_to("nothing")
    (root / "to_itself").symlink_to(root)
    os.mkfifo(root / "pipe")

    package = pack_folder(root, {})

    assert tuple(unpacked(package)) == ("real/a.py", "to_file")
    assert unpacked(package)["to_file"] == "this is file"
    assert [note.partition(":")[0] for note in package.notes] == [
        "left out to_inner",
        "left out to_itself",
        "left out to_nothing",
        "left out to_outer",
    ]


def test_a_file_that_cannot_be_shipped_is_told(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9")).touch()
    with pytest.raises(BadConfigError, match=r"udce9: cannot be shipped(.|\n)*\.rayignore"):
        pack_folder(tmp_path, {})


def test_what_cannot_even_be_looked_at_is_told(tmp_path):
    write(tmp_path, "a.py")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BadConfigError, match="loop: cannot be shipped"):
        pack_folder(tmp_path, {})


def test_a_folder_that_is_ignored_whole_is_told(tmp_path):
    root = new_repository(tmp_path / "repo", {"a.py": "a", ".gitignore": "/out/\n"})
    write(root, "out/b.py")
    package = pack_folder(root / "out", {})
    assert unpacked(package) == {}
    assert "ignores all of it" in package.notes[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_a_file_that_may_not_be_read_is_told(tmp_path):
    write(tmp_path, "secret")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(BadConfigError, match="secret"):
        pack_folder(tmp_path, {})


def test_the_same_code_makes_the_same_package_at_any_time(tmp_path):
    write(tmp_path, "a.py", "lib/b.py")
    first = pack_folder(tmp_path, {"more": b"1"})
    os.utime(tmp_path / "a.py", (1, 1))
    again = pack_folder(tmp_path, {"more": b"1"})
    assert first == again
    assert unpacked(first) == {
        "a.py": "this is a.py",
        "lib/b.py": "this is lib/b.py",
        "more": "1",
    }
    write(tmp_path, "c.py")
    assert pack_folder(tmp_path, {}).uri != first.uri


@pytest.mark.parametrize("limit", ["MAX_PACKAGE", "_MAX_FILES"])
def test_too_much_is_refused_with_the_largest_folders(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(code_package, limit, 100_000)
    write(tmp_path, "a.py")
    for name, size in (("data", 90_000), ("models", 150_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(random.Random(0).randbytes(size))
    with pytest.raises(BadConfigError, match=r"most of it is in models/ 146.5 KiB, data/"):
        pack_folder(tmp_path, {})


def test_our_own_package_goes_along_with_its_jobs():
    names = set(unpacked(pack_this_package()))
    assert "ditk_ray/cli/main.py" in names
    assert "ditk_ray/report/templates" not in names
    assert any(name.startswith("ditk_ray/report/templates/") for name in names)
    assert any(name.startswith("job_cfgs/") for name in names)
    assert not any("__pycache__" in name for name in names)
