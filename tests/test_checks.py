"""What a process may still take: the machine's memory, and the limits of the container that it runs in."""

from types import SimpleNamespace

import psutil
import pytest

from evenhand import checks
from evenhand.checks import available_memory, check_memory
from evenhand.errors import TooLarge

UNLIMITED = 9223372036854771712
"""What version 1 writes where there is no limit."""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 8 GB free memory with the control groups of a folder: returns (write, available)."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8_000_000_000))
    monkeypatch.setattr(checks, "Path", lambda root: tmp_path)

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="ascii")

    return write


def second(write, group, limit, used, cache=0):
    """A group of version 2."""
    folder = f"sys/fs/cgroup/{group}"
    write(f"{folder}/memory.max", limit)
    write(f"{folder}/memory.current", used)
    write(f"{folder}/memory.stat", f"anon 5\ninactive_file {cache}\nactive_file 7")


def first(write, group, limit, used, cache=0):
    """A group of version 1."""
    folder = f"sys/fs/cgroup/memory/{group}"
    write(f"{folder}/memory.limit_in_bytes", limit)
    write(f"{folder}/memory.usage_in_bytes", used)
    write(f"{folder}/memory.stat", f"inactive_file 1\ntotal_inactive_file {cache}")


class TestAvailable:
    def test_without_groups_it_is_the_machine(self, machine):
        assert available_memory() == 8e9

    def test_version_2(self, machine):
        machine("proc/self/cgroup", "0::/app.slice/job")
        second(machine, "app.slice/job", 3_000_000_000, 1_000_000_000)
        assert available_memory() == 2e9

    def test_a_cache_of_files_is_given_back(self, machine):
        machine("proc/self/cgroup", "0::/job")
        second(machine, "job", 3_000_000_000, 1_000_000_000, cache=400_000_000)
        assert available_memory() == 2.4e9

    def test_the_narrowest_group_around_it_counts(self, machine):
        machine("proc/self/cgroup", "0::/outer/inner")
        second(machine, "outer/inner", "max", 10)
        second(machine, "outer", 2_000_000_000, 500_000_000)
        assert available_memory() == 1.5e9

    def test_a_limit_beyond_the_machine_is_none(self, machine):
        machine("proc/self/cgroup", "0::/job")
        second(machine, "job", 64_000_000_000, 10)
        assert available_memory() == 8e9

    def test_version_1(self, machine):
        machine("proc/self/cgroup", "9:cpu,cpuacct:/elsewhere\n4:memory:/docker/abc\n0::/")
        first(machine, "docker/abc", 1_000_000_000, 300_000_000, cache=100_000_000)
        first(machine, "docker", UNLIMITED, 600_000_000)
        assert available_memory() == 0.8e9

    def test_version_1_seen_from_inside_a_container(self, machine):
        """The group is named as the host knows it, and its files are at the top."""
        machine("proc/self/cgroup", "4:memory:/docker/abc")
        first(machine, "", 1_000_000_000, 300_000_000)
        assert available_memory() == 0.7e9

    def test_groups_of_others_do_not_count(self, machine):
        machine("proc/self/cgroup", "5:devices:/job\n0::/mine")
        second(machine, "job", 1_000, 10)
        first(machine, "job", 1_000, 10)
        assert available_memory() == 8e9

    def test_a_group_that_is_over_its_limit_leaves_nothing(self, machine):
        machine("proc/self/cgroup", "0::/job")
        second(machine, "job", 1_000, 5_000)
        assert available_memory() == 0

    @pytest.mark.parametrize("text", ["", "nonsense", "0::", "a:b", ":::::", "0::/../../job"])
    def test_what_cannot_be_read_is_passed_over(self, machine, text):
        machine("proc/self/cgroup", text)
        machine("sys/fs/cgroup/memory.max", "")
        machine("sys/fs/cgroup/memory.stat", "inactive_file\nx y z")
        assert available_memory() == 8e9

    def test_what_does_not_fit_the_container_is_refused(self, machine):
        machine("proc/self/cgroup", "0::/job")
        second(machine, "job", 3_000_000_000, 1_000_000_000)
        check_memory(1.5e9, "the table", "Use another method.")
        with pytest.raises(TooLarge, match=r"the table would need 1\.7 GB, and 2 GB are free\. Use another method\."):
            check_memory(1.7e9, "the table", "Use another method.")

    def test_for_a_little_nobody_looks(self, machine, monkeypatch):
        machine("proc/self/cgroup", "0::/job")
        second(machine, "job", 1_000, 5_000)
        with pytest.raises(TooLarge, match="and 0 bytes are free"):
            check_memory(1.1e6, "the table", "Use another method.")
        monkeypatch.setattr("evenhand.checks.available_memory", lambda: pytest.fail("looked"))
        check_memory(0.9e6, "the table", "Use another method.")


def test_this_machine_has_some_and_not_more_than_it_has():
    assert 0 < available_memory() <= psutil.virtual_memory().total
