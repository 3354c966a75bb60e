"""Read the facts about a device: one shell script, one round trip, nothing written. And whose its root is.

Slipway uses only a root that it made or got empty, and that others cannot change. A root is ours if it has
``.slipway-root``, the first file that is written into a new or empty folder: the format's version and an id of its own.
It must belong to the login's user, and so must the folders in it; nobody else may write to them, and they must not be
links. Each folder above it belongs to the login's user or to root (or the owner of ``/``), and others may write to it
only if it is sticky, as ``/tmp`` is; a link above it belongs to one of these two as well. Of Android's
``/data/local/tmp``, what is above it is the system's.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from core.errors import AnswerError, RootError, TransferError
from core.paths import cache_dir
from core.plain import one_line, plain, says
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.scripts import script
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import ANSWER, natural

if TYPE_CHECKING:
    from core.formats.bundle import Needs

TOOLS = ("stat", "mkdir", "mv", "ln", "cp", "rm", "chmod", "df", "cat", "kill", "sleep", "env")
"""Programs that deploying runs on the device; coreutils, busybox and toybox have them all."""

LOADERS = (
    "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux-armhf.so.3",
    "/lib/ld-linux.so.3", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1", "/lib/ld-musl-armhf.so.1",
    "/system/bin/linker64", "/system/bin/linker",
)  # fmt: skip

_TRIPLETS = {
    "x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu", "armv7l": "arm-linux-gnueabihf",
    "armv6l": "arm-linux-gnueabihf", "i686": "i386-linux-gnu",
}  # fmt: skip

_LINE = 4000
"""Characters of a line: the CPU features of a large x86 take some 2,500."""
_LINES = 2000
"""Lines of a part: Android has some 1,000 properties."""
_MOST = 1 << 50
"""The largest plausible number of kibibytes or cores."""

END = "\n@@end\n"

# Arm's cores by implementer 0x41 and part, as in Linux's arch/arm64/include/asm/cputype.h and arch/arm's cputype.h.
_ARM_PARTS = {
    "0xb76": "ARM1176", "0xc07": "Cortex-A7", "0xc08": "Cortex-A8", "0xc09": "Cortex-A9", "0xc0f": "Cortex-A15",
    "0xd03": "Cortex-A53", "0xd04": "Cortex-A35", "0xd05": "Cortex-A55", "0xd07": "Cortex-A57", "0xd08": "Cortex-A72",
    "0xd0a": "Cortex-A75", "0xd0b": "Cortex-A76", "0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1",
    "0xd49": "Neoverse-N2",
}  # fmt: skip


def probe(transport: Transport, root: str, needs: Needs | None, deadline: Deadline) -> DeviceFacts:
    """Probe the device and its ``root``, as the inventory has it; loader and libraries of ``needs`` are looked for."""

    def ask(text: str) -> str:
        words = ["sh", "-c", text, "probe", *arguments(root, needs)]
        return run(transport, words, deadline=deadline, doing="asking the device what it is", most=ANSWER).text

    said = ask(script("probe"))
    facts = parse(said)
    unknown = facts.system == "Darwin" and "\n@@darwin\n" not in said  # a Mac that is just being added
    return parse(ask(script("probe", mac=True))) if unknown else facts


def arguments(root: str, needs: Needs | None) -> list[str]:
    """The words of the script; see `probe`."""
    loaders = [*LOADERS, *([needs.loader] if needs and needs.loader else [])]
    libraries = needs.libraries if needs else ()
    triplet = _TRIPLETS.get(needs.machine, "") if needs else ""
    lists = (" ".join(names) for names in (loaders, libraries, TOOLS))
    return [root, triplet, *lists, needs.loader if needs else ""]


def parse(text: str) -> DeviceFacts:
    """Facts from what the script printed.

    Raises:
        AnswerError: the answer is not the script's. RootError: the root is below HOME, and the login has none.
    """
    parts = _parts(text)
    system = parts["system"]
    root = _first(parts, "root")
    reported = re.search(r"^@@root\n(.*?)\n\n@@near$", text, re.DOTALL | re.MULTILINE)
    if reported is not None and reported[1] != root:
        # A home folder with such a name is not shown as it is.
        raise TransferError(
            f"The device's folder {one_line(root)!r} cannot be used.",
            "its name holds invisible characters, a line break, or blanks at an end",
            "set root in devices.toml to another folder",
        )
    if "end" in parts and "near" in parts and not root:
        raise refusal("the device", "home", "")
    if "end" not in parts or len(system) < 3 or not root.startswith("/"):
        raise AnswerError(
            "The device did not answer the probe.",
            says("the device", text[:200]) or "it said nothing",
            "see that it has a POSIX sh, and that the login may run it",
        )
    memory = {
        key.strip(): kibibytes * 1024
        for line in parts["memory"]
        for key, _, rest in [line.partition(":")]
        if rest.split() and (kibibytes := natural(rest.split()[0], _MOST)) is not None
    }
    cpuinfo = _keyed(parts["cpuinfo"])
    glibc = _newest(parts["glibc"], r"(?:GLIBC_|/libc-|release version )(2\.[0-9]{1,4})") or _first(
        parts, "getconf"
    ).removeprefix("glibc ")
    loaders = tuple(dict.fromkeys(parts["loaders"]))
    pairs = (re.fullmatch(r"\[([^\]]+)\]: \[(.*)\]", line) for line in parts["android"])  # as getprop prints them
    properties = {pair[1]: pair[2] for pair in pairs if pair}
    phone = (properties.get(f"ro.product.{key}", "") for key in ("manufacturer", "model"))
    mac = _keyed(parts["darwin"])
    return DeviceFacts(
        system=system[0],
        machine=system[1],
        kernel=system[2],
        hostname=system[3] if len(system) > 3 else "",
        board=" ".join(filter(None, phone)) or _first(parts, "board"),
        cpu=_cpu(cpuinfo) or mac.get("machdep.cpu.brand_string", ""),
        cpu_features=tuple((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split()),
        cores=_count(_first(parts, "online")) or natural(_first(parts, "cores"), _MOST) or 1,
        android=properties.get("ro.build.version.release", ""),
        api_level=natural(properties.get("ro.build.version.sdk", ""), _MOST),
        abis=_abis(properties),
        memory_total=memory.get("MemTotal", 0) or natural(mac.get("hw.memsize", ""), 1 << 60) or 0,
        memory_available=memory.get("MemAvailable", memory.get("MemFree", 0)),
        libc=_libc(glibc, loaders),
        glibc=glibc,
        glibcxx=_glibcxx(parts["glibcxx"]),
        loaders=loaders,
        libraries=tuple(line.split()[0] for line in parts["libraries"] if line.split()),
        tools=tuple(parts["tools"]),
        home=_first(parts, "home"),
        root=posixpath.normpath(root),
        free=_free(next(reversed(parts["df"]), "")),
        noexec=_noexec(parts["mounts"], _first(parts, "near")),
        writable=_first(parts, "writable") == "yes",
    )


def _count(ranges: str) -> int:
    """The number of cores in ``0-3,6``."""
    matches = [re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part) for part in ranges.split(",")]
    return max(0, sum(int(match[2] or match[1]) - int(match[1]) + 1 for match in matches if match))


def _parts(text: str) -> defaultdict[str, list[str]]:
    parts: defaultdict[str, list[str]] = defaultdict(list)
    current: list[str] = []
    for line in text.splitlines():
        clean = "".join(letter for letter in line[:_LINE] if letter.isprintable()).strip()
        if line.startswith("@@"):
            current = parts[line[2:]]
        elif clean and len(current) < _LINES:
            current.append(plain(clean))  # a device's answers are shown on terminals: without escape sequences
    return parts


def _first(parts: defaultdict[str, list[str]], name: str) -> str:
    return next(iter(parts[name]), "")


def _newest(lines: list[str], pattern: str) -> str:
    """The highest version that ``pattern`` finds: in symbol names, a file's name, or the loader's output."""
    found = {version for line in lines for version in re.findall(pattern, line)}
    return max(found, key=lambda version: [int(part) for part in version.split(".") if part], default="")


def _glibcxx(lines: list[str]) -> str:
    """``libstdc++.so.6.0.30`` brings GLIBCXX_3.4.30 (GCC's manual, "ABI Policy and Guidelines")."""
    numbered = _newest(lines, r"/libstdc\+\+\.so\.6\.0\.([0-9]{1,4})$")
    return f"3.4.{numbered}" if numbered else _newest(lines, r"GLIBCXX_(3\.4\.[0-9]{1,4})")


def _libc(glibc: str, loaders: tuple[str, ...]) -> str:
    if glibc:
        return "glibc"
    if any("ld-musl" in loader for loader in loaders):
        return "musl"
    return "bionic" if any(loader.startswith("/system/") for loader in loaders) else ""


def _keyed(lines: list[str]) -> dict[str, str]:
    """The first value of each key, as in ``/proc/cpuinfo`` or what a Mac's ``sysctl`` prints: ``key: value``."""
    pairs = (line.partition(":") for line in reversed(lines))
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _cpu(info: dict[str, str]) -> str:
    part = info.get("CPU part", "")
    arm = _ARM_PARTS.get(part) if info.get("CPU implementer") == "0x41" else None
    fallback = f"implementer {info.get('CPU implementer')} part {part}" if part else ""
    return arm or info.get("model name") or info.get("Hardware") or fallback


def _free(line: str) -> int | None:
    fields = line.split()
    kibibytes = natural(fields[-3], _MOST) if len(fields) >= 3 else None
    return None if kibibytes is None else kibibytes * 1024


def _noexec(mounts: list[str], folder: str) -> bool:
    """Whether the mount that holds ``folder`` (the longest mount point above it; the last one wins) is noexec."""
    rows = [line.split() for line in reversed(mounts)]
    points = [(fields[1].replace("\\040", " "), fields[3]) for fields in rows if len(fields) >= 4]
    above = [one for one in points if one[0] in {"/", folder} or folder.startswith(one[0] + "/")]
    _, options = max(above, key=lambda one: len(one[0]), default=("", ""))
    return "noexec" in options.split(",")


def _abis(properties: dict[str, str]) -> tuple[str, ...]:
    """The preferred first; before Android 5 there was one, and a second one for compatibility."""
    listed = properties.get("ro.product.cpu.abilist") or ",".join(
        properties.get(f"ro.product.cpu.{key}", "") for key in ("abi", "abi2")
    )
    return tuple(abi for abi in listed.split(",") if abi)


MARKER = ".slipway-root"

_WHY = {
    "home": ("its login has no HOME, and the root is a folder below it", "set root to an absolute folder"),
    "link": ("{path} is a link; what it points to may be anything", "set root to the folder itself, not to a link"),
    "kind": ("{path} is neither a folder nor a marker of Slipway", "set root to a folder of its own"),
    "owner": ("{path} belongs to another user, who can put anything there", "set root to a folder of the login's own"),
    "open": ("others may write to {path}", "chmod go-w {path} on the device if only you use it, or set another root"),
    "unseen": ("{path} cannot be looked at", "see that the login's user may list the folders above it"),
    "name": ("{path} leads to a folder with a line break in its name", "set root to another folder"),
    "marker": ("{path} is not a marker that this version knows", "update Slipway, or set another root"),
}


def refusal(device: str, why: str, path: str) -> RootError:
    """The error for a root that Slipway refuses to use, for a reason of ``lock.sh``; nothing in it was changed.

    The path is the one concerned; of a folder that is not Slipway's, a file in it.
    """
    file = f" for {device} in devices.toml"
    if why == "unmarked":
        root, _, foreign = path.rpartition("/")
        return RootError(
            f"The root {root} on {device} is not Slipway's.",
            f"it has no {MARKER}, and it holds {foreign}; Slipway removes files in its root, so it takes only a new or "
            "empty folder",
            f"set root to a folder of its own{file} (without root it is .slipway in the login's home)",
            (foreign,),
        )
    cause, hint = (text.format(path=path) for text in _WHY.get(why, ("{path}: " + why, "set another root")))
    return RootError(f"The root on {device} is not safe.", cause, hint + file, (path,))


def device_root(device: Device) -> str:
    """The folder of Slipway's files on ``device``: the inventory's ``root``, or its transport's default."""
    if device.root:
        return device.root
    if device.transport == "local":
        return str(cache_dir("devices", device.name.replace(":", "-")))
    if device.transport == "adb":
        from deploy.transport.adb.transport import HOME

        return f"{HOME}/slipway"
    return ".slipway"
