"""Try the known ways from a root-owned bubblewrap sandbox to the host; print what worked."""

import ctypes
import os
import subprocess
from contextlib import suppress

MS_REMOUNT, MS_BIND = 32, 4096
NAMESPACES = {"user": 0x10000000, "mnt": 0x00020000, "net": 0x40000000, "pid": 0x20000000, "uts": 0x04000000}
# Files that the kernel guards with the caller's uid alone, which is the host's for a host root.
HOST_WIDE = [f"sys/kernel/{name}" for name in ("core_pattern", "modprobe", "hostname")]
HOST_WIDE += ["sys/vm/drop_caches", "sys/fs/suid_dumpable", "sysrq-trigger", "self/uid_map", "irq/default_smp_affinity"]
DIRECTORIES = [
    "/",
    "/usr",
    "/usr/bin",
    "/usr/local",
    "/usr/src",
    "/etc",
    "/etc/ssl/certs",
    "/bin",
    "/dev",
    "/.vf/supervisor",
]


def mounts() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for target in (b"/", b"/usr", b"/etc", b"/proc", b"/dev"):
        for flags in (MS_REMOUNT, MS_REMOUNT | MS_BIND):
            if libc.mount(None, target, None, flags, None) == 0:
                print("remounted", target)
    for kind in (b"tmpfs", b"proc", b"sysfs", b"devtmpfs", b"ext4"):
        if libc.mount(kind, b"/tmp", kind, 0, None) == 0:
            print("mounted", kind)
    if libc.umount2(b"/etc/passwd", 2) == 0:
        print("unmounted /etc/passwd")
    if libc.chroot(b"/tmp") == 0:
        print("chroot worked")


def namespaces() -> None:
    for name, flag in NAMESPACES.items():
        child = os.fork()
        if child == 0:
            libc = ctypes.CDLL(None, use_errno=True)
            os._exit(0 if libc.unshare(flag) == 0 else 1)
        if os.waitpid(child, 0)[1] == 0:
            print("unshared", name)


def files() -> None:
    for name in HOST_WIDE:
        with suppress(OSError):
            os.close(os.open(f"/proc/{name}", os.O_WRONLY))
            print("opened for writing", name)
    for directory in DIRECTORIES:
        with suppress(OSError):
            os.close(os.open(f"{directory}/planted", os.O_WRONLY | os.O_CREAT))
            print("wrote into", directory)
    for number, name in ((7, "disk"), (1, "mem")):
        with suppress(OSError):
            os.mknod(f"/tmp/{name}", 0o600 | 0o060000, os.makedev(number, 0))
            print("made device", name)


def capabilities() -> None:
    with open("/proc/self/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.startswith("Cap") and int(value, 16) != 0:
                print("capability", line.strip())
            if name == "NoNewPrivs" and value.strip() != "1":
                print("new privileges are possible")
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], stderr=subprocess.DEVNULL)
    if done.returncode == 0:
        print("unshare(1) worked")


if __name__ == "__main__":
    capabilities()
    mounts()
    namespaces()
    files()
