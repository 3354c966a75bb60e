"""The kernel and the root file system of a virtual device, put together from Debian's packages.

The system has folders, accounts and configuration of ours beside Debian's programs. An image is made once and cached;
the folder's name carries a digest of everything that went in. Keys are not part of it: they go into a second, tiny
archive behind the first (the kernel unpacks both) when a device starts.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.console import note
from core.errors import ConfigError
from core.files import sealed, sha256_bytes
from core.paths import cache_dir
from deploy.virtual import cpio
from deploy.virtual.spec import Spec
from toolchains.debian import packages as debian
from toolchains.debian import tree

_FORMAT = 2
"""Increased when this module changes what it makes of the same packages."""


@dataclass(frozen=True)
class Image:
    """What the emulator boots."""

    kernel: Path
    initrd: Path
    """An uncompressed cpio archive: the emulated processor would take longer to unpack it than to read it."""
    dtb: Path | None = None


def image(spec: Spec) -> Image:
    """The image of ``spec``, built if it is missing.

    Raises:
        HostError: packages cannot be downloaded.
        ConfigError: the table names files that the packages lack.
    """
    kernel, system = trees(spec)
    versions = debian.versions(kernel) | debian.versions(system)
    parts = [_FORMAT, spec.model_dump(mode="json"), versions, [repr(entry) for entry in root_entries(spec)]]
    key = sha256_bytes(json.dumps(parts).encode())[:16]
    folder = cache_dir("images") / f"{spec.name}-{key}"
    sealed.made(folder, f"image-{spec.name}-{key}", lambda new: _build(spec, kernel, system, new))
    return Image(folder / "vmlinuz", folder / "initrd.cpio", folder / "board.dtb" if spec.dtb else None)


def trees(spec: Spec) -> tuple[Path, Path]:
    """The unpacked packages of the kernel and of the root file system."""
    kernel = debian.tree(spec.kernel_from, spec.arch, _kernel_packages(spec), name="kernel")
    return kernel, debian.tree(spec.suite, spec.arch, spec.system.packages, closure=True, name="system")


def _kernel_packages(spec: Spec) -> list[str]:
    """The packages that hold the kernel itself: ``spec.kernel`` may only depend on the newest one, which from forky
    on depends on one with the kernel and one with the modules.
    """
    named = _depends(spec, spec.kernel, r"\blinux-image-\d[\w.+-]*")
    image = named[0] if named else spec.kernel
    return [image, *_depends(spec, image, r"\blinux-(?:binary|modules)-\d[\w.+-]*")]


def _depends(spec: Spec, package: str, pattern: str) -> list[str]:
    file = debian.fetch(spec.kernel_from, spec.arch, [package])[0]
    return re.findall(pattern, tree.control(file, "Depends"))


def _build(spec: Spec, kernel: Path, system: Path, folder: Path) -> None:
    note(f"building the image of virtual device {spec.name} (once)")
    entries = [*root_entries(spec), *_programs(spec, system), *_modules(spec, kernel)]
    (folder / "initrd.cpio").write_bytes(cpio.write(entries))
    (folder / "vmlinuz").write_bytes(_one(kernel, "boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz").read_bytes())
    if spec.dtb:
        (folder / "board.dtb").write_bytes(_one(kernel, spec.dtb).read_bytes())


def _one(root: Path, *patterns: str) -> Path:
    """The last file of the first pattern that matches any."""
    found = next((found for pattern in patterns if (found := sorted(root.glob(pattern)))), [])
    if not found:
        raise ConfigError(
            f"The packages hold no {' or '.join(patterns)}.", f"looked in {root}", "fix deploy/virtual/virtual.toml"
        )
    return found[-1]


def _programs(spec: Spec, system: Path) -> Iterator[cpio.Entry]:
    """The programs of the table, every library they load, and one of them under the names of its applets."""
    pending = [_one(system, pattern) for pattern in spec.system.programs]
    seen: set[Path] = set()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.is_symlink():
            target = path.parent.resolve() / path.readlink()
            yield cpio.link(_inside(path, system), str(path.readlink()))
            pending.append(target.parent.resolve() / target.name)
            continue
        data = path.read_bytes()
        # The tree has no set-user-id bits to keep.
        yield cpio.file(_inside(path, system), data, stat.S_IMODE(path.stat().st_mode))
        if data[:4] == b"\x7fELF":
            pending.extend(_needed(path, system))
    taken = {_inside(path, system) for path in seen}
    for applet in spec.system.applets:
        path_of_applet = f"{spec.system.folder}/{applet}"
        if path_of_applet not in taken:
            yield cpio.link(path_of_applet, f"/{spec.system.multicall}")


def _inside(path: Path, root: Path) -> str:
    """Path in the device with links resolved, since ``lib`` is a link to ``usr/lib``."""
    return (path.parent.resolve() / path.name).relative_to(root.resolve()).as_posix()


def _needed(program: Path, root: Path) -> Iterator[Path]:
    """Loader and libraries an ELF file names."""
    from elftools.elf.elffile import ELFFile

    with program.open("rb") as file:
        elf = ELFFile(file)
        for segment in elf.iter_segments("PT_INTERP"):
            loader = root / segment.get_interp_name().lstrip("/")
            yield loader.parent.resolve() / loader.name
        dynamic = elf.get_section_by_name(".dynamic")
        names = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic is not None else []
    for name in names:
        found = sorted(root.glob(f"usr/lib/*-linux-gnu*/android/{name}"))  # adbd's own, which its run path names
        yield found[-1] if found else _one(root, f"usr/lib/*-linux-gnu*/{name}")


def _modules(spec: Spec, kernel: Path) -> Iterator[cpio.Entry]:
    """The drivers, and the order to load them in."""
    modules, builtin = find(_one(kernel, "usr/lib/modules/*"))
    paths: list[str] = []
    for file in load_order(spec.modules, modules, builtin):
        path = "usr/" + _inside(file, kernel).removeprefix("usr/").removesuffix(".xz")
        yield cpio.file(path, read_module(file))
        paths.append(f"/{path}\n")
    yield cpio.file("etc/modules-in-order", "".join(paths))


def keys_archive(host_key: str, authorized: str) -> bytes:
    """The second archive: the device's own key and the one that may log in."""
    own = cpio.file("etc/ssh/ssh_host_ed25519_key", host_key, 0o600)
    return cpio.write([own, cpio.file("etc/ssh/authorized_keys", f"{authorized}\n")])


def read_module(file: Path) -> bytes:
    """A module's ELF file, unpacked: suites after bookworm ship them compressed."""
    raw = file.read_bytes()
    return lzma.decompress(raw) if file.suffix == ".xz" else raw


def modinfo(raw: bytes) -> dict[str, list[str]]:
    """The ``key=value`` pairs of a module's ``.modinfo`` section; a key may occur several times."""
    from elftools.elf.elffile import ELFFile

    section = ELFFile(io.BytesIO(raw)).get_section_by_name(".modinfo")
    found: dict[str, list[str]] = {}
    for pair in section.data().split(b"\0") if section is not None else []:
        key, sign, value = pair.decode("utf-8", "replace").partition("=")
        if sign:
            found.setdefault(key, []).append(value)
    return found


def _plain(name: str) -> str:
    """The module's name in a file's name, which may have dashes instead of underscores."""
    return name.replace("-", "_")


def find(root: Path) -> tuple[dict[str, Path], frozenset[str]]:
    """All modules below ``lib/modules/<version>`` by name, and the names of those built into the kernel."""
    modules = {_plain(file.name.split(".ko")[0]): file for file in sorted(root.rglob("*.ko*"))}
    listing = root / "modules.builtin"
    lines = listing.read_text(encoding="utf-8").split() if listing.is_file() else []
    return modules, frozenset(_plain(Path(line).name.split(".ko")[0]) for line in lines)


def load_order(required: Iterable[str], modules: Mapping[str, Path], builtin: frozenset[str]) -> list[Path]:
    """The files to load for ``required``, each after its dependencies, which it names itself in ``.modinfo``.

    A package's modules come without ``modules.dep``, which depmod makes at installation.

    Raises:
        ConfigError: the kernel's package lacks a module.
    """
    order: list[Path] = []
    seen: set[str] = set()

    def visit(name: str, because: str) -> None:
        if name in seen or name in builtin:
            return
        seen.add(name)
        file = modules.get(name)
        if file is None:
            raise ConfigError(
                f"The kernel's package has no module {name}.", f"needed by {because}", "fix deploy/virtual/virtual.toml"
            )
        info = modinfo(read_module(file))
        before = [word for value in info.get("depends", []) for word in value.split(",") if word]
        soft = (value.partition("post:")[0] for value in info.get("softdep", []) if value.startswith("pre:"))
        before += [word for value in soft for word in value.removeprefix("pre:").split() if _plain(word) in modules]
        for word in before:
            visit(_plain(word), name)
        order.append(file)

    for name in required:
        visit(_plain(name), "deploy/virtual/virtual.toml")
    return order


_INITTAB = """\
::sysinit:/etc/rc
::respawn:{server}
"""

_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PrintMotd no
AcceptEnv LANG LC_*
MaxStartups 100
MaxSessions 64
ClientAliveInterval 15
Subsystem sftp /usr/lib/openssh/sftp-server
"""

# As init gives it to adbd on a phone: its PATH and ANDROID_* variables, and the user shell.
_ADBD = """\
#!/usr/bin/busybox sh
cd /
exec /usr/bin/busybox env -i PATH=/system/bin ANDROID_ROOT=/system ANDROID_DATA=/data ADBD_PORT={port} \\
  /usr/bin/busybox start-stop-daemon -S -c shell:shell -x /usr/lib/android-sdk/platform-tools/adbd
"""

_SHELL = 2000
"""The user shell's number on Android (AID_SHELL in android_filesystem_config.h)."""


def root_entries(spec: Spec) -> Iterator[cpio.Entry]:
    """Everything of ``spec`` that is not in a package."""
    yield from _common(spec)
    yield from _android(spec) if spec.system.login == "adb" else _debian(spec)


def _common(spec: Spec) -> Iterator[cpio.Entry]:
    for path in ("dev", "proc", "sys", "mnt", "run", "usr/lib64"):
        yield cpio.folder(path)
    for name in ("lib", "lib64"):
        yield cpio.link(name, f"usr/{name}")
    yield cpio.folder("root", 0o700)
    yield cpio.character_device("dev/console", 5, 1)
    yield cpio.character_device("dev/null", 1, 3, 0o666)
    yield cpio.link("init", "usr/bin/busybox")
    yield cpio.file("etc/rc", Path(__file__).with_name("virtual_init.sh").read_bytes(), 0o755)
    yield cpio.file("etc/hostname", f"{spec.hostname}\n")
    yield cpio.file("etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {spec.hostname}\n")
    yield cpio.link("etc/mtab", "/proc/self/mounts")


def _fstab(spec: Spec, home: str, owner: str) -> Iterator[cpio.Entry]:
    """Mount points: ``home`` belongs to the login's user, everyone may write to the others."""
    mounts = ["devpts /dev/pts devpts mode=620,ptmxmode=666 0 0"]
    if spec.system.login == "ssh":  # Android has none
        mounts.append("tmpfs /dev/shm tmpfs mode=1777 0 0")
    for path, size in spec.tmpfs.items():
        yield cpio.folder(path.lstrip("/"))
        mounts.append(f"tmpfs {path} tmpfs {owner if path == home else 'mode=1777'},size={size} 0 0")
    yield cpio.file("etc/fstab", "\n".join(mounts) + "\n")


def _debian(spec: Spec) -> Iterator[cpio.Entry]:
    home = f"/home/{spec.user}"
    for path in ("run/sshd", "var/empty", "var/tmp", "etc/ssh"):
        yield cpio.folder(path)
    for name in ("bin", "sbin"):
        yield cpio.link(name, f"usr/{name}")
    yield cpio.link("usr/bin/sh", "dash")
    yield cpio.file("etc/inittab", _INITTAB.format(server="/usr/sbin/sshd -D -e"))
    yield cpio.file("etc/ssh/sshd_config", _SSHD)
    yield cpio.file(
        "etc/passwd",
        f"root:x:0:0:root:/root:/bin/bash\n{spec.user}:x:1000:1000::{home}:/bin/bash\n"
        "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    )
    yield cpio.file("etc/group", f"root:x:0:\n{spec.user}:x:1000:\nnogroup:x:65534:\n")
    yield cpio.file("etc/shadow", f"root:*:19000::::::\n{spec.user}:*:19000::::::\n", 0o600)
    yield cpio.link("etc/os-release", "../usr/lib/os-release")
    yield from _fstab(spec, home, "mode=700,uid=1000,gid=1000")


def _android(spec: Spec) -> Iterator[cpio.Entry]:
    """Android's layout as far as ``adb shell`` sees it: no /tmp, no /dev/shm, everything in /system/bin."""
    yield cpio.link("bin", "/system/bin")
    yield cpio.link("system/bin/sh", "/usr/bin/mksh")
    yield cpio.link("system/bin/toybox", "/usr/bin/toybox")
    yield cpio.link("system/bin/sha256sum", "/usr/bin/sha256sum")
    yield cpio.file("system/bin/getprop", Path(__file__).with_name("virtual_getprop.sh").read_bytes(), 0o755)
    yield cpio.file("system/build.prop", "".join(f"{key}={value}\n" for key, value in spec.properties.items()))
    yield cpio.folder("data", 0o771)
    yield cpio.folder("data/local", 0o751)
    yield cpio.file("etc/inittab", _INITTAB.format(server="/etc/adbd"))
    yield cpio.file("etc/adbd", _ADBD.format(port=spec.system.port), 0o755)
    yield cpio.file("etc/passwd", f"root:x:0:0:root:/:/bin/sh\n{spec.user}:x:{_SHELL}:{_SHELL}:shell:/:/bin/sh\n")
    yield cpio.file("etc/group", f"root:x:0:\n{spec.user}:x:{_SHELL}:\n")
    yield from _fstab(spec, "/data/local/tmp", f"mode=771,uid={_SHELL},gid={_SHELL}")
