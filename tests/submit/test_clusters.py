"""The file of known clusters."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from ditk_ray.errors import BadConfigError
from ditk_ray.kuberay.lookup import forget
from ditk_ray.submit.clusters import (
    KnownCluster,
    choose_clusters,
    forget_clusters,
    forget_token,
    read_clusters,
    token_file,
    token_of,
    write_clusters,
    write_token,
)

LAB = KnownCluster("lab", "http://10.0.0.7:8265")
GKE = KnownCluster("gke", "https://ray.example.org")


@pytest.fixture
def file(tmp_path):
    return tmp_path / ".cluster_config"


def test_names_and_addresses_are_read_as_isaac_lab_writes_them(file):
    file.write_text(
        "# mine\n\nname: lab address: http://10.0.0.7:8265\n"
        "name: gke address: https://ray.example.org/ num_gpu: 8\n"
    )
    assert read_clusters(file) == [LAB, GKE]


def test_a_cluster_whose_address_has_a_password_is_named_as_in_the_file():
    secret = KnownCluster("lab", "http://me:pa55@h:1")
    assert (str(secret), secret.flag) == ("lab (http://me:***@h:1)", "--cluster lab")
    assert KnownCluster("h:1", secret.address).flag == "--address http://me:***@h:1"
    assert LAB.flag == f"--address {LAB.address}"


def test_without_a_file_there_are_no_clusters(file):
    assert read_clusters(file) == []


def test_every_wrong_line_is_reported_with_its_number(file):
    addresses = ["http://[::1:8265", "http://h:port", "http://h:65536", "http://:8265", "h:1"]
    wrong = ["lab http://10.0.0.7:8265", "name: a/b address: http://h:1", "name: d"]
    wrong += [f"name: c address: {address}" for address in addresses]
    twice = ["name: e address: http://h:1", "name: e address: http://h:2"]
    file.write_text("\n".join(["# mine", *wrong, *twice]))
    with pytest.raises(BadConfigError) as refused:
        read_clusters(file)

    lines = [problem.where.rpartition(" ")[2] for problem in refused.value.problems]
    assert lines == ["2", "3", "4", "5", "6", "7", "8", "9", "11"]
    assert "name: NAME address: http://HOST:PORT" in str(refused.value)


def test_an_address_may_be_of_ipv6(file):
    file.write_text("name: a address: http://[::1]:8265\n")
    assert read_clusters(file) == [KnownCluster("a", "http://[::1]:8265")]


def test_writing_keeps_other_lines_and_replaces_a_cluster_in_its_place(file):
    file.write_text("# mine\nname: lab address: http://old:1\nname: x address: http://x:1\n")

    write_clusters(file, [GKE, LAB])

    assert file.read_text() == (
        "# mine\nname: lab address: http://10.0.0.7:8265\nname: x address: http://x:1\n"
        "name: gke address: https://ray.example.org\n"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [item.name for item in file.parent.iterdir()] == [file.name]


def test_what_was_written_can_be_forgotten(file):
    write_clusters(file, [LAB, GKE])
    forget_clusters(file, {"lab"})
    assert read_clusters(file) == [GKE]


def test_a_link_to_the_file_stays_a_link(file, tmp_path):
    (tmp_path / "dotfiles").touch()
    file.symlink_to(tmp_path / "dotfiles")
    write_clusters(file, [LAB])
    assert file.is_symlink()
    assert read_clusters(tmp_path / "dotfiles") == [LAB]


def test_commands_that_write_at_once_lose_nothing_of_each_other(file):
    """As two terminals do that forward to two clusters."""
    clusters = [KnownCluster(f"c{number}", "http://h:1") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda cluster: write_clusters(file, [cluster]), clusters))
    assert {cluster.name for cluster in read_clusters(file)} == {each.name for each in clusters}


class TestForgettingWhatIsDeleted:
    @pytest.fixture(autouse=True)
    def _home(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))

    @pytest.mark.parametrize(
        "line",
        [
            "name: rl address: http://rl-head-svc.team.svc:8265\n",
            "name: rl address: http://127.0.0.1:9000\n",
            "",
        ],
    )
    def test_its_line_goes_with_its_token(self, file, line):
        file.write_text(f"# mine\n{line}name: x address: http://x:1\n")
        for name in ("rl", "x"):
            write_token(name, "secret")
        forget(file, "team", {"rl"})
        assert file.read_text() == "# mine\nname: x address: http://x:1\n"
        assert [token_file(name).exists() for name in ("rl", "x")] == [False, True]

    @pytest.mark.parametrize("address", ["http://rl-head-svc.other.svc:8265", "http://10.0.0.7:1"])
    def test_another_cluster_of_that_name_is_known_as_before(self, file, address):
        file.write_text(f"name: rl address: {address}\n")
        write_token("rl", "secret")
        forget(file, "team", {"rl"})
        assert read_clusters(file) == [KnownCluster("rl", address)]
        assert token_file("rl").exists()


class TestWhichClustersAreMeant:
    def test_given_ones_by_name_and_by_address(self, file):
        write_clusters(file, [LAB, GKE])
        chosen = choose_clusters(["gke"], [LAB.address + "/", "http://h:1"], file, False)
        assert chosen == [GKE, LAB, KnownCluster("h:1", "http://h:1")]

    def test_an_unknown_name_is_reported_with_those_like_it(self, file):
        write_clusters(file, [LAB, GKE])
        with pytest.raises(BadConfigError, match="did you mean 'lab'"):
            choose_clusters(["lap"], [], file, False)

    def test_the_address_of_the_environment_comes_before_the_file(self, file, monkeypatch):
        write_clusters(file, [LAB])
        monkeypatch.setenv("RAY_ADDRESS", "http://h:1")
        assert choose_clusters([], [], file, False) == [KnownCluster("h:1", "http://h:1")]
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")  # of no use for sending jobs
        assert choose_clusters([], [], file, False) == [LAB]

    def test_of_several_clusters_one_has_to_be_chosen_for_one_job(self, file):
        write_clusters(file, [LAB, GKE])
        assert choose_clusters([], [], file, True) == [LAB, GKE]
        with pytest.raises(BadConfigError, match="choose one of lab, gke"):
            choose_clusters([], [], file, False)

    def test_without_any_it_is_this_machine(self, file):
        (only,) = choose_clusters([], [], file, True)
        assert only.address == "http://127.0.0.1:8265"

    def test_a_password_is_not_printed_back(self, file):
        with pytest.raises(BadConfigError, match=r"--address ray://me:\*\*\*@h: is not"):
            choose_clusters([], ["ray://me:pa55@h"], file, False)

    @pytest.mark.parametrize("address", ["h:8265", "ray://h:10001", "http://", "http://h:port"])
    def test_an_address_that_is_none_of_a_dashboard_is_refused(self, file, address):
        with pytest.raises(BadConfigError, match="write http://HOST:8265"):
            choose_clusters([], [address], file, False)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    return tmp_path


def test_a_clusters_own_comes_before_the_users(home, monkeypatch):
    assert token_of("lab") is None
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text("of the user\n")
    assert token_of("lab") == "of the user"
    (home / "elsewhere").write_text("of a file")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "~/elsewhere")
    assert token_of("lab") == "of a file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the shell")
    assert token_of("lab") == "of the shell"
    file = write_token("lab", "of lab")
    assert token_of("lab") == "of lab"
    assert token_of("other") == "of the shell"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    forget_token("lab")
    assert token_of("lab") == "of the shell"


def test_a_token_that_cannot_be_kept_is_told_with_its_file(home):
    (home / ".ray").touch()
    with pytest.raises(BadConfigError, match=r"\.ray/tokens/lab: the token cannot be kept"):
        write_token("lab", "of lab")
    with pytest.raises(BadConfigError, match=r"\.ray/tokens/lab: the token cannot be removed"):
        forget_token("lab")


def test_a_file_that_is_named_but_not_there_is_a_mistake(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/no/such/file")
    with pytest.raises(BadConfigError, match="RAY_AUTH_TOKEN_PATH"):
        token_of("lab")
