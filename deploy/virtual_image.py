"""The kernel and the root file system of a virtual device, put together from Debian's packages.

Made once and cached; the folder's name carries a digest of everything that went in. Keys are not part of it:
they go into a second, tiny archive behind the first (the kernel unpacks both) when a device starts.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.console import note
from core.errors import ConfigError
from core.files import locked, new_folder, sha256_bytes, write_json
from core.paths import cache_dir
from deploy import cpio, kernel_modules
from deploy.virtual_spec import Spec
from toolchains import debian

_FORMAT = 1
"""Raised when this module makes something else of the same ingredients."""

_STAMP = "image.json"
_RC = Path(__file__).with_name("virtual_init.sh")

_INITTAB = """\
::sysinit:/etc/rc
::respawn:/usr/sbin/sshd -D -e
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


@dataclass(frozen=True)
class Image:
    """What QEMU boots."""

    kernel: Path
    initrd: Path
    """An uncompressed cpio archive: the emulated processor would take longer to unpack it than to read it."""
    dtb: Path | None = None


def image(spec: Spec) -> Image:
    """The image of ``spec``, built when it is not there.

    Raises:
        HostError: packages cannot be had.
        ConfigError: the table names what the packages do not hold.
    """
    kernel = debian.tree(spec.suite, spec.arch, [_kernel_package(spec)], name="kernel")
    system = debian.tree(spec.suite, spec.arch, spec.system.packages, closure=True, name="system")
    versions = debian.versions(kernel) | debian.versions(system)
    key = sha256_bytes(
        json.dumps([_FORMAT, spec.model_dump(mode="json"), versions, _RC.read_text(), _INITTAB, _SSHD]).encode()
    )[:16]
    folder = cache_dir("images") / f"{spec.name}-{key}"
    if not (folder / _STAMP).is_file():
        with locked(f"image-{spec.name}-{key}"):
            if not (folder / _STAMP).is_file():
                _build(spec, kernel, system, folder, versions)
    return Image(folder / "vmlinuz", folder / "initrd.cpio", folder / "board.dtb" if spec.dtb else None)


def _kernel_package(spec: Spec) -> str:
    """The package that holds the kernel itself: ``spec.kernel`` may only depend on the newest one."""
    package = debian.fetch(spec.suite, spec.arch, [spec.kernel])[0]
    match = re.search(r"\b(linux-image-\d[\w.+-]*)", debian.control(package, "Depends"))
    return match[1] if match else spec.kernel


def _build(spec: Spec, kernel: Path, system: Path, folder: Path, versions: dict[str, str]) -> None:
    note(f"building the image of virtual device {spec.name} (once)")
    entries = [*_root(spec), *_programs(spec, system), *_modules(spec, kernel)]
    with new_folder(folder) as temporary:
        (temporary / "initrd.cpio").write_bytes(cpio.write(entries))
        (temporary / "vmlinuz").write_bytes(_one(kernel, "boot/vmlinuz-*").read_bytes())
        if spec.dtb:
            (temporary / "board.dtb").write_bytes(_one(kernel, spec.dtb).read_bytes())
        write_json(temporary / _STAMP, {"device": spec.name, "packages": versions})


def _one(root: Path, pattern: str) -> Path:
    found = sorted(root.glob(pattern))
    if not found:
        raise ConfigError(f"The packages hold no {pattern}.", f"looked in {root}", "mend deploy/virtual.toml")
    return found[-1]


def _root(spec: Spec) -> Iterator[cpio.Entry]:
    """Folders, devices and configuration."""
    home = f"/home/{spec.user}"
    for path in ("dev", "proc", "sys", "mnt", "run/sshd", "var/empty", "var/tmp", "etc/ssh", "usr/lib64"):
        yield cpio.folder(path)
    for name in ("bin", "sbin", "lib", "lib64"):
        yield cpio.link(name, f"usr/{name}")
    yield cpio.folder("root", 0o700)
    yield cpio.character_device("dev/console", 5, 1)
    yield cpio.character_device("dev/null", 1, 3, 0o666)
    yield cpio.link("init", "usr/bin/busybox")
    yield cpio.file("etc/rc", _RC.read_bytes(), 0o755)
    yield cpio.file("etc/inittab", _INITTAB)
    yield cpio.file("etc/ssh/sshd_config", _SSHD)
    yield cpio.file("etc/hostname", f"{spec.hostname}\n")
    yield cpio.file("etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {spec.hostname}\n")
    yield cpio.link("etc/mtab", "/proc/self/mounts")
    yield cpio.file(
        "etc/passwd",
        f"root:x:0:0:root:/root:/bin/bash\n{spec.user}:x:1000:1000::{home}:/bin/bash\n"
        "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    )
    yield cpio.file("etc/group", f"root:x:0:\n{spec.user}:x:1000:\nnogroup:x:65534:\n")
    yield cpio.file("etc/shadow", f"root:*:19000::::::\n{spec.user}:*:19000::::::\n", 0o600)
    yield cpio.link("etc/os-release", "../usr/lib/os-release")
    mounts = ["devpts /dev/pts devpts mode=620,ptmxmode=666 0 0", "tmpfs /dev/shm tmpfs mode=1777 0 0"]
    for path, size in spec.tmpfs.items():
        yield cpio.folder(path.lstrip("/"))
        owner = "mode=700,uid=1000,gid=1000" if path == home else "mode=1777"
        mounts.append(f"tmpfs {path} tmpfs {owner},size={size} 0 0")
    yield cpio.file("etc/fstab", "\n".join(mounts) + "\n")


def _programs(spec: Spec, system: Path) -> Iterator[cpio.Entry]:
    """The programs of the table, every library they load, and busybox under the names of its applets."""
    wanted = [_one(system, pattern) for pattern in spec.system.programs]
    seen: set[Path] = set()
    while wanted:
        path = wanted.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.is_symlink():
            target = path.parent.resolve() / path.readlink()
            yield cpio.link(_inside(path, system), str(path.readlink()))
            wanted.append(target.parent.resolve() / target.name)
            continue
        data = path.read_bytes()
        # A set-user-id bit is not there to be kept: the tree has none.
        yield cpio.file(_inside(path, system), data, stat.S_IMODE(path.stat().st_mode))
        if data[:4] == b"\x7fELF":
            wanted.extend(_needed(path, system))
    taken = {_inside(path, system) for path in seen}
    for applet in spec.system.applets:
        if f"usr/bin/{applet}" not in taken:
            yield cpio.link(f"usr/bin/{applet}", "busybox")
    if "usr/bin/sh" not in taken:
        yield cpio.link("usr/bin/sh", "dash")


def _inside(path: Path, root: Path) -> str:
    """Path in the device: of the folder where it really lies, for ``lib`` is a link to ``usr/lib``."""
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
        yield _one(root, f"usr/lib/*-linux-gnu*/{name}")


def _modules(spec: Spec, kernel: Path) -> Iterator[cpio.Entry]:
    """The drivers, and the order to load them in."""
    modules, builtin = kernel_modules.find(_one(kernel, "usr/lib/modules/*"))
    paths: list[str] = []
    for file in kernel_modules.load_order(spec.modules, modules, builtin):
        path = "usr/" + _inside(file, kernel).removeprefix("usr/").removesuffix(".xz")
        yield cpio.file(path, kernel_modules.read_module(file))
        paths.append(f"/{path}\n")
    yield cpio.file("etc/modules-in-order", "".join(paths))


def keys_archive(host_key: str, authorized: Iterable[str]) -> bytes:
    """The second archive: the device's own key and the keys that may log in."""
    return cpio.write(
        [
            cpio.file("etc/ssh/ssh_host_ed25519_key", host_key, 0o600),
            cpio.file("etc/ssh/authorized_keys", "".join(f"{line}\n" for line in authorized)),
        ]
    )
