"""A real PostgreSQL, from the system's own programs: started once, in a folder of its own, as a user who is not root.

It listens on a socket in that folder and on no port, so that any number of them can run at a time.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote


def find_programs():
    """The folder of the newest server that is installed, or None."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent, *folders] if on_path else folders
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


class PostgreSQL:
    """One server."""

    def __init__(self, programs, within=None):
        """Make its folder, within one that is given or the system's for such things; nothing runs yet."""
        self.programs, self.number = programs, 0
        self.folder = Path(tempfile.mkdtemp(prefix="evenhand-pg-", dir=within))
        self.user = self._user()
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user)
        self._run("initdb", "-D", self.data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8", "--locale=C")

    @property
    def data(self):
        return self.folder / "data"

    def _user(self):
        """PostgreSQL refuses to run as root."""
        if os.geteuid():
            return pwd.getpwuid(os.geteuid()).pw_name
        return next(name for name in ("postgres", "nobody") if self._exists(name))

    @staticmethod
    def _exists(name):
        with contextlib.suppress(KeyError):
            return bool(pwd.getpwnam(name))
        return False

    def _run(self, program, *arguments):
        as_user = {"user": self.user} if os.geteuid() == 0 else {}
        command = [str(self.programs / program), *map(str, arguments)]
        log = self.folder / f"{program}.log"
        with log.open("wb") as out:  # a file, for the server keeps what it was given open
            done = subprocess.run(command, stdout=out, stderr=out, cwd=self.folder, check=False, **as_user)
        assert done.returncode == 0, log.read_text()

    def start(self):
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=200"
        self._run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-o", options, "-w", "start")

    def is_running(self):
        try:
            self._run("pg_ctl", "-D", self.data, "status")
        except AssertionError:
            return False
        return True

    def stop(self, mode="fast"):
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def address(self, database):
        return f"postgresql://tester@/{database}?host={quote(str(self.folder), safe='')}"

    def database(self):
        """The address of a new database."""
        self.number += 1
        name = f"programme{self.number}"
        self._run("createdb", "-h", self.folder, "-U", "tester", name)
        return self.address(name)

    def end(self):
        with contextlib.suppress(AssertionError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
