"""Available memory: that of the machine, and the limit of its container."""

from types import SimpleNamespace

import psutil
import pytest

from evenhand import checks
from evenhand.checks import available_memory, check_memory
from evenhand.errors import TooLargeError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 8 GB free memory with the control groups of a folder: returns the function that writes a file."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8_000_000_000))
    monkeypatch.setattr(checks, "Path", lambda root: tmp_path)

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="ascii")

    return write


def group(write, name, limit, used, cache=0):
    """Write a control group of version 2."""
    folder = f"sys/fs/cgroup/{name}"
    write(f"{folder}/memory.max", limit)
    write(f"{folder}/memory.current", used)
    write(f"{folder}/memory.stat", f"anon 5\ninactive_file {cache}\nactive_file 7")


class TestAvailable:
    def test_without_groups_it_is_the_machine(self, machine):
        assert available_memory() == 8e9

    def test_limit_of_a_group(self, machine):
        machine("proc/self/cgroup", "0::/app.slice/job")
        group(machine, "app.slice/job", 3_000_000_000, 1_000_000_000)
        assert available_memory() == 2e9

    def test_cached_files_count_as_free(self, machine):
        machine("proc/self/cgroup", "0::/job")
        group(machine, "job", 3_000_000_000, 1_000_000_000, cache=400_000_000)
        assert available_memory() == 2.4e9

    def test_the_smallest_room_counts(self, machine):
        machine("proc/self/cgroup", "0::/outer/inner")
        group(machine, "outer/inner", "max", 10)
        group(machine, "outer", 2_000_000_000, 500_000_000)
        assert available_memory() == 1.5e9

    def test_limit_beyond_the_machine(self, machine):
        machine("proc/self/cgroup", "0::/job")
        group(machine, "job", 64_000_000_000, 10)
        assert available_memory() == 8e9

    def test_other_groups_are_ignored(self, machine):
        machine("proc/self/cgroup", "5:devices:/job\n0::/mine")
        group(machine, "job", 1_000, 10)
        assert available_memory() == 8e9

    def test_a_group_that_is_over_its_limit_leaves_nothing(self, machine):
        machine("proc/self/cgroup", "0::/job")
        group(machine, "job", 1_000, 5_000)
        assert available_memory() == 0

    @pytest.mark.parametrize("text", ["", "nonsense", "0::", "a:b", ":::::", "0::/../../job"])
    def test_invalid_files_are_ignored(self, machine, text):
        machine("proc/self/cgroup", text)
        machine("sys/fs/cgroup/memory.max", "")
        machine("sys/fs/cgroup/memory.stat", "inactive_file\nx y z")
        assert available_memory() == 8e9

    def test_sizes_beyond_the_container_are_refused(self, machine):
        machine("proc/self/cgroup", "0::/job")
        group(machine, "job", 3_000_000_000, 1_000_000_000)
        check_memory(1.5e9, "the table", "Use another method.")
        with pytest.raises(TooLargeError, check=lambda error: "1.7 GB" in str(error) and "2 GB" in str(error)):
            check_memory(1.7e9, "the table", "Use another method.")

    def test_small_sizes_are_not_checked(self, machine, monkeypatch):
        machine("proc/self/cgroup", "0::/job")
        group(machine, "job", 1_000, 5_000)
        with pytest.raises(TooLargeError, check=lambda error: "0 bytes" in str(error)):
            check_memory(1.1e6, "the table", "Use another method.")
        monkeypatch.setattr("evenhand.checks.available_memory", lambda: pytest.fail("looked"))
        check_memory(0.9e6, "the table", "Use another method.")


def test_this_machine_has_some_and_not_more_than_it_has():
    assert 0 < available_memory() <= psutil.virtual_memory().total
