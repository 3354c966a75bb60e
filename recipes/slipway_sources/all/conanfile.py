"""Where the recipes of this index get their sources: written once, for all of them.

conandata.yml of a recipe names one or both places a version:

    sources:
      "<version>":
        debian: {suite: ..., package: ..., file: ..., sha256: ...}  # upstream's tarball or a .deb of Debian's archive
        git: {url: ..., commit: ...}                                 # upstream's repository, pinned

The profile chooses: conf `user.slipway:sources` is `debian`, `git` or `auto` (Debian where the recipe and the profile
know a way to it, else git). conf `user.slipway:fetch` is a command that takes suite, package, file and sha256, and
prints the verified file's path on its last line. conf `user.slipway:git_url.<recipe>` takes the place of git's url.
"""

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.files import apply_conandata_patches, copy, unzip

required_conan_version = ">=2.4"

FETCH = "user.slipway:fetch"
SOURCES = "user.slipway:sources"
GIT_URL = "user.slipway:git_url"
RECORD = "source.json"


def preferred(recipe):
    """`debian` or `git`: where the profile has sources come from, as far as a recipe has them there."""
    wanted = recipe.conf.get(SOURCES, default="auto", choices=["auto", "debian", "git"])
    if wanted == "auto":
        return "debian" if recipe.conf.get(FETCH, check_type=list, default=[]) else "git"
    return wanted


def debian_file(recipe, suite, package, file, sha256):
    """Path of the verified file of Debian's archive."""
    command = recipe.conf.get(FETCH, check_type=list, default=[])
    if not command:
        raise ConanException(
            f"{file} comes from the package {package} of Debian {suite}, and the profile does not say how "
            f'to get that: set {FETCH}=["COMMAND", ...] in its [conf].'
        )
    recipe.output.info(f"fetching {file}")
    done = run([*map(str, command), suite, package, file, sha256], FETCH)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines or not Path(lines[-1]).is_file():
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise ConanException(f"{file} could not be fetched:\n{last}")
    path = Path(lines[-1])
    if path.name != file and path.suffix == ".deb":
        if not rebuilt(file, path.name):
            raise ConanException(f"{file} was asked for, and {path.name} came, which is not a rebuild of that version")
        # Its digest is of the list that Debian signs: the command read it there.
        recipe.output.warning(f"{file} is gone from the archive: {path.name} took its place")
        return path
    got = hashlib.sha256(path.read_bytes()).hexdigest()
    if got != sha256:
        raise ConanException(f"{file} is not the file that was pinned: its sha256 is {got}, not {sha256}")
    return path


def rebuilt(pinned, other):
    """Whether two names of .deb files are alike but for what a rebuild or a stable update appends: +b1, +deb13u4."""
    plain = [re.sub(r"(?:\+(?:deb\d+u\d+|b\d+))+(?=_[^_]+\.deb$)", "", name) for name in (pinned, other)]
    return plain[0] == plain[1]


def git_commit(recipe, folder, url, commit):
    """Check out one commit; its name is the digest of all that is in it, and git verifies it."""
    recipe.output.info(f"fetching {commit} of {url}")
    git = ["git", "-C", str(folder)]
    done = run([*git, "init", "--quiet"], "git")
    # One commit is enough; a server that does not serve single commits is asked for everything.
    for words in (["--depth=1", url, commit], ["--tags", url, "+refs/*:refs/fetched/*"]):
        if done.returncode == 0:
            done = run([*git, "fetch", "--quiet", *words], "git")
            if done.returncode == 0:
                break
            complaint, done = done, run([*git, "rev-parse", "--git-dir"], "git")
    else:
        last = "\n".join(complaint.stderr.strip().splitlines()[-5:])
        raise ConanException(f"{url} could not be fetched:\n{last}")
    done = run([*git, "checkout", "--quiet", "--detach", commit], "git")
    head = run([*git, "rev-parse", "HEAD"], "git").stdout.strip()
    if done.returncode or head != commit:
        raise ConanException(f"{url} has no commit {commit}: {done.stderr.strip() or head}")


def run(words, what):
    """A finished command with captured text."""
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConanException(f"{what} names a command that cannot be run: {error}") from error


def unpack(recipe, path, folder):
    """Unpack a tarball, its single top folder left out where it has one, or the files of a .deb as they are."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        root = Path(name, "files")
        root.mkdir()
        if path.suffix == ".deb":
            path = deb_data(path, Path(name))
        unzip(recipe, str(path), destination=str(root))
        entries = list(root.iterdir())
        if len(entries) == 1 and entries[0].is_dir() and entries[0].name != "usr":
            entries = list(entries[0].iterdir())
        for entry in entries:
            entry.rename(folder / entry.name)


def deb_data(path, folder):
    """The tarball of a Debian package's files, put into `folder` by dpkg: it comes with apt."""
    tarball = folder / "data.tar"
    with tarball.open("wb") as out:
        try:
            words = ["dpkg-deb", "--fsys-tarfile", str(path)]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, check=False)
        except OSError as error:
            raise ConanException(f"{path.name} cannot be unpacked without dpkg-deb: {error}") from error
    if done.returncode:
        raise ConanException(
            f"{path.name} is not a whole Debian package: {done.stderr.decode(errors='replace').strip()}"
        )
    return tarball


class Fetched:
    """What a recipe extends whose sources are fetched from there, and patched where conandata.yml says so."""

    @property
    def _place(self):
        """`debian` or `git`: where this recipe's sources come from."""
        wanted = preferred(self)
        places = self.conan_data["sources"][str(self.version)]
        if wanted not in places:
            if self.conf.get(SOURCES, default="auto") == "auto":
                return next(iter(places))
            raise ConanException(
                f"{self.ref}: its sources are not to be had from {wanted}, only from {', '.join(places)}"
            )
        return wanted

    def package_id(self):
        if self.package_type == "header-library":
            self.info.clear()
        # Packages of one place are not taken for those of another.
        self.info.conf.define(SOURCES, self._place)

    def source(self):
        """Fill the source folder; a record of where the files came from is left in it."""
        place, folder = self._place, Path(self.source_folder)
        pins = self.conan_data["sources"][str(self.version)][place]
        if place == "debian":
            unpack(self, debian_file(self, **pins), folder)
        else:
            pins = {**pins, "url": self.conf.get(f"{GIT_URL}.{self.name}", default=pins["url"])}
            git_commit(self, folder, **pins)
        (folder / RECORD).write_text(json.dumps({"place": place, **pins}) + "\n", encoding="utf-8")
        if "patches" in self.conan_data:
            apply_conandata_patches(self)

    def _record(self):
        """From `package()`: the record goes into the package, beside the licences.

        The source folder serves all packages of a recipe's revision, so a changed mind finds the old place's files in
        it.
        """
        found = json.loads((Path(self.source_folder) / RECORD).read_text(encoding="utf-8"))["place"]
        if found != self._place:
            raise ConanException(
                f"the sources in Conan's cache came from {found}, {SOURCES} says {self._place}: "
                f"conan cache clean {self.ref} --source"
            )
        copy(self, RECORD, self.source_folder, str(Path(self.package_folder, "licenses")))


class SlipwaySourcesConan(ConanFile):
    name = "slipway_sources"
    description = "Fetches the sources of this index's recipes: from Debian's archive or upstream's git"
    license = "Apache-2.0"
    package_type = "python-require"
