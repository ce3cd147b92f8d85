"""The store of compiled code attacked: bytes flipped, files cut, exchanged and planted, no room, several writers.

A small kernel is compiled from a file of its own, and its store is harmed by seed. Whatever was done, the answer is
right, at most one line is said, and the next reader finds a sound file again. Nothing planted is ever run.
"""

import errno
import os
import pickle
import subprocess
import sys
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from evenhand.errors import CompiledAnew
from evenhand.kernels import kept

from ..conftest import try_each

SOURCE = """
from evenhand.kernels.jit import njit

@njit(cache=True)
def weigh(numbers, factor):
    total = 0.0
    for number in numbers:
        total += factor * number
    return total
"""
NUMBERS = np.arange(4.0)
SEEDS, MANY_SEEDS = range(6), range(6, 400)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Loads the kernel as a new process would."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "weighing.py").write_text(SOURCE)
    previous, kept.numba.config.CACHE_DIR = kept.numba.config.CACHE_DIR, ""

    def load():
        spec = spec_from_file_location("weighing", folder / "weighing.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.weigh

    load.folder = folder / "__pycache__"
    assert load()(NUMBERS, 2.0) == 12
    load.sound = {file: file.read_bytes() for file in load.folder.glob("*.nbc")}
    assert len(load.sound) == 1
    yield load
    kept.numba.config.CACHE_DIR = previous


@pytest.fixture
def said(monkeypatch):
    """What is said from here on, as in a new process."""
    monkeypatch.setattr(kept, "_told", set())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield told


def harmed(text, rng):
    """A file after an accident."""
    kind = rng.choice(["flip", "flip", "flip", "cut", "empty", "noise", "zeros", "longer"])
    if kind == "flip":
        where = int(rng.integers(len(text)))
        return kind, text[:where] + bytes([text[where] ^ (1 << int(rng.integers(8)))]) + text[where + 1 :]
    if kind == "cut":
        return kind, text[: int(rng.integers(len(text)))]
    if kind == "zeros":  # what a crash of the machine may leave of a file
        where = int(rng.integers(len(text)))
        return kind, text[:where] + bytes(len(text) - where)
    return kind, {"empty": b"", "noise": rng.bytes(len(text)), "longer": text + rng.bytes(100)}[kind]


def attack(kernel, seed):
    """Harm the file, use it, and look at what is left."""
    ((file, sound),) = kernel.sound.items()
    kind, text = harmed(sound, np.random.default_rng([seed, 16]))
    file.write_bytes(text)
    kept._told.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        weigh = kernel()
        assert weigh(NUMBERS, 2.0) == 12, kind
    old = text[: len(kept.MARK)] == kept.MARK and text[len(kept.MARK) :][:32] != sound[len(kept.MARK) :][:32]
    assert [warning.category for warning in told] == ([] if old and len(text) > 80 else [CompiledAnew]), kind
    assert all("\n" not in str(warning.message) for warning in told)
    again = kernel()
    again(NUMBERS, 2.0)
    assert again.stats.cache_hits, kind


def test_harm_of_every_kind_is_met_by_compiling_anew(kernel):
    try_each(lambda seed: attack(kernel, seed), SEEDS)
    assert list(kernel.folder.glob("*.damaged"))


@pytest.mark.slow
def test_harm_of_every_kind_many_times(kernel):
    try_each(lambda seed: attack(kernel, seed), MANY_SEEDS)


class Planted:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return (os.putenv, ("EVENHAND_PLANTED", "yes"))


def test_what_has_not_its_digest_is_never_unpickled(kernel, said, monkeypatch):
    ((file, sound),) = kernel.sound.items()
    head = sound[: len(kept.MARK) + 64]
    file.write_bytes(head + pickle.dumps((1, Planted())))
    monkeypatch.setattr(kept.pickle, "loads", lambda text: pytest.fail("unpickled"))
    assert kernel()(NUMBERS, 2.0) == 12
    assert "it was changed" in str(said[0].message)


def test_code_of_other_sources_or_versions_is_replaced_without_a_word(kernel, said):
    ((file, sound),) = kernel.sound.items()
    place = len(kept.MARK)
    file.write_bytes(sound[:place] + bytes(32) + sound[place + 32 :])
    assert kernel()(NUMBERS, 2.0) == 12
    assert not said
    assert file.read_bytes()[place : place + 32] == sound[place : place + 32]


def test_code_for_other_types_or_processors_is_not_taken_for_ours(kernel, said):
    """Not even if the files were exchanged."""
    weigh = kernel()
    assert weigh(NUMBERS, 2) == 12  # another type of number
    ours, other = sorted(kernel.folder.glob("*.nbc"), key=lambda file: file not in kernel.sound)
    ours.write_bytes(other.read_bytes())
    assert kernel()(NUMBERS, 2.5) == 15
    other.unlink()
    cache, codegen = weigh._cache, weigh.targetctx.codegen()

    class Elsewhere:
        def magic_tuple(self):
            return ("elsewhere", *codegen.magic_tuple()[1:])

    assert cache.file_of(weigh.signatures[0], codegen) != cache.file_of(weigh.signatures[0], Elsewhere())
    assert not said


def test_a_change_of_what_a_kernel_imports_is_a_change_of_the_kernel(tmp_path):
    main, other, unrelated = (tmp_path / f"{name}.py" for name in ("main", "other", "unrelated"))
    main.write_text("from evenhand.kernels.other import inlined\n")
    other.write_text("from evenhand.kernels import main\n")  # even in a circle
    unrelated.write_text("1\n")
    before = kept.stamp_of.__wrapped__(main)
    unrelated.write_text("2\n")
    assert kept.stamp_of.__wrapped__(main) == before
    other.write_text("from evenhand.kernels import main\nfactor = 2\n")
    assert kept.stamp_of.__wrapped__(main) != before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
def test_where_nothing_can_be_written_it_goes_on_with_one_line(kernel, said, monkeypatch, number):
    for file in kernel.folder.iterdir():
        file.unlink()

    def full(path, text):
        path.touch()
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        weigh = kernel()
        assert weigh(NUMBERS, 2.0) == 12
        assert weigh(NUMBERS, 2) == 12
    (line,) = (str(warning.message) for warning in said)
    assert os.strerror(number) in line
    assert "NUMBA_CACHE_DIR" in line
    assert not [file for file in kernel.folder.iterdir() if file.suffix != ".pyc"]
    kernel()(NUMBERS, 2.0)
    assert list(kernel.folder.glob("*.nbc")) == list(kernel.sound)


def test_where_no_folder_can_be_made_it_goes_on_with_one_line(kernel, said, monkeypatch):
    monkeypatch.setattr(kept.FunctionCache, "__init__", lambda *_: (_ for _ in ()).throw(RuntimeError("no locator")))
    assert kernel()(NUMBERS, 2.0) == 12
    assert kernel()(NUMBERS, 2.0) == 12
    assert len(said) == 1
    assert "no folder" in str(said[0].message)


def make_writable(file):
    file.chmod(0o666)


def give_away(file):
    if os.geteuid():
        pytest.skip("only the administrator can give a file away")
    os.chown(file, 54321, -1)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners on this system")
@pytest.mark.parametrize("harm", [make_writable, give_away])
def test_what_others_could_have_written_is_never_unpickled(kernel, said, monkeypatch, harm):
    for file, sound in kernel.sound.items():
        file.write_bytes(sound)
        harm(file)
    with monkeypatch.context() as patched:
        patched.setattr(kept.pickle, "loads", lambda content: pytest.fail("it was unpickled"))
        assert kernel()(NUMBERS, 2.0) == 12
    (line,) = (str(warning.message) for warning in said)
    assert "others could have written it" in line
    for file in kernel.sound:
        assert not file.stat().st_mode & 0o002 and file.stat().st_uid == os.geteuid()
        file.with_suffix(".damaged").unlink()


def test_a_folder_in_the_place_of_a_file(kernel, said):
    (file,) = kernel.sound
    file.unlink(missing_ok=True)
    file.mkdir()
    assert kernel()(NUMBERS, 2.0) == 12
    assert [warning.category for warning in said] == [CompiledAnew]
    again = kernel()
    again(NUMBERS, 2.0)
    assert again.stats.cache_hits


USE = """
import resource, sys, warnings
import evenhand as eh
if sys.argv[1:] == ["no room"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
machines = eh.problems.machine_replacement(num_arms=100, budget=20)
print(eh.simulate_counts(machines, eh.policies.whittle(machines), 20, 20, rng=0).returns.mean())
"""


def start(folder, *arguments):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", USE, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, lines):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert err.count("\n") == lines, err
    return float(out)


@pytest.mark.slow
def test_whole_processes(tmp_path):
    """Two fill an empty store at once; then it is harmed; then there is no room."""
    together = [start(tmp_path) for _ in range(3)]
    answers = {finish(process, 0) for process in together}
    files = sorted(tmp_path.rglob("*.nbc"))
    assert files
    assert len(sorted(tmp_path.rglob("*.*"))) == len(files)
    rng = np.random.default_rng(16)
    for file in files:
        file.write_bytes(harmed(file.read_bytes(), rng)[1])
    answers.add(finish(start(tmp_path), 1))
    answers.add(finish(start(tmp_path), 0))
    answers.add(finish(start(tmp_path / "other", "no room"), 1))
    assert len(answers) == 1
