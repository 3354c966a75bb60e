"""What a virtual device's root file system holds beside Debian's programs: folders, accounts, configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deploy.virtual import cpio
from deploy.virtual.spec import Spec

_RC = Path(__file__).with_name("virtual_init.sh")
_GETPROP = Path(__file__).with_name("virtual_getprop.sh")

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


def entries(spec: Spec) -> Iterator[cpio.Entry]:
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
    yield cpio.file("etc/rc", _RC.read_bytes(), 0o755)
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
    yield cpio.file("system/bin/getprop", _GETPROP.read_bytes(), 0o755)
    yield cpio.file("system/build.prop", "".join(f"{key}={value}\n" for key, value in spec.properties.items()))
    yield cpio.folder("data", 0o771)
    yield cpio.folder("data/local", 0o751)
    yield cpio.file("etc/inittab", _INITTAB.format(server="/etc/adbd"))
    yield cpio.file("etc/adbd", _ADBD.format(port=spec.system.port), 0o755)
    yield cpio.file("etc/passwd", f"root:x:0:0:root:/:/bin/sh\n{spec.user}:x:{_SHELL}:{_SHELL}:shell:/:/bin/sh\n")
    yield cpio.file("etc/group", f"root:x:0:\n{spec.user}:x:{_SHELL}:\n")
    yield from _fstab(spec, "/data/local/tmp", f"mode=771,uid={_SHELL},gid={_SHELL}")
