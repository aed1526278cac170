"""A few hosts on one machine, with a real Slurm and real SSH servers.

A host is a namespace with a network, processes, mounts, a name and a /tmp/ray of its own. The file system is
shared, as NFS would be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.integration.clusters import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

NETWORK = "10.98.7"
HEAD = f"{NETWORK}.254"  # of Slurm, outside of the hosts
BRIDGE = "tbtests"
# By program, Debian's package that has it
PROGRAMS = {"ip": "iproute2", "sshd": "openssh-server", "ssh": "openssh-client", "rsync": "rsync"}
SLURM_PROGRAMS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}
CPUS = 2  # of each host, as Slurm is told

START = """
hostname {name}
mount --bind {folder}/hosts /etc/hosts
mount --bind {folder}/passwd /etc/passwd
mkdir -p /tmp/ray && mount -t tmpfs ray /tmp/ray
/usr/sbin/sshd -f {folder}/sshd_config
exec {last}
"""
SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
PermitRootLogin yes
UsePAM no
"""
SLURM = """
ClusterName=tests
SlurmctldHost=head({head})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=30
JobRequeue=1
{nodes}
PartitionName=tests Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why hosts cannot be made here, whatever is installed; None if they can."""
    if os.geteuid() != 0:
        return "hosts are namespaces, and only root may make them"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return None if tried.returncode == 0 else "namespaces cannot be made here"


def missing(programs: Iterable[str]) -> str | None:
    """The first of some programs that is not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    return next((name for name in programs if shutil.which(name, path=path) is None), None)


@dataclass
class Hosts:
    """Hosts t1 to tN, at addresses that end in their numbers."""

    folder: Path
    count: int
    has_slurm: bool
    _started: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def key(self) -> Path:
        """The SSH key of root on every host."""
        return self.folder / "key"

    @property
    def slurm(self) -> dict[str, str]:
        """The environment in which Slurm's commands find this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def address(self, host: int) -> str:
        return f"{NETWORK}.{host}"

    def run(self, host: int, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """What a command does on a host. What it has started may go on, with its output."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [*self._inside(host), *map(str, command)],
                env={**os.environ, **variables},
                stdout=out,
                stderr=said,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            out.seek(0), said.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, out.read(), said.read())

    def popen(self, host: int, *command: str | Path, out: Path, **variables: str) -> subprocess.Popen[bytes]:
        """A command that was started on a host, with all that it prints in a file."""
        with out.open("wb") as file:
            return subprocess.Popen(
                [*self._inside(host), *map(str, command)],
                env={**os.environ, **variables},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, started: subprocess.Popen[bytes]) -> None:
        """Tell a command that was started on a host to end, and wait for it."""
        for child in psutil.Process(started.pid).children():  # it waits for this one, and passes no signal on
            child.terminate()
        started.wait(PATIENCE_SECONDS)

    def processes(self, host: int, name: str) -> list[str]:
        """The command lines on a host that hold a text, whole, whatever COLUMNS says."""
        found = self.run(host, "ps", "-ewwo", "stat=,args=").stdout.splitlines()
        return [
            each for each in found if name in each and not each.startswith("Z") and "ps -ewwo" not in each
        ]

    def start(self, host: int) -> None:
        """Start a host, also again after it was cut off."""
        name, folder = f"t{host}", self.folder
        (folder / f"spool-{name}").mkdir(exist_ok=True)
        last = f"slurmd -D -N {name} -f {folder}/slurm.conf" if self.has_slurm else "sleep infinity"
        first = START.format(name=name, folder=folder, last=last)
        namespaces = ("--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        self._started[host] = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{_network(host)}", "unshare", *namespaces, "sh", "-c", first],
            stdout=(folder / f"{name}.out").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_until(lambda: bool(_children(self._started[host].pid)))
        wait_until(lambda: self.run(host, "hostname").stdout.strip() == name)

    def cut_off(self, host: int) -> None:
        """End a host with all that runs on it at once, as a power cut would."""
        started = self._started.pop(host)
        started.kill()  # unshare takes the first process of its namespace along, and that all others
        started.wait()

    def _inside(self, host: int) -> list[str]:
        (first,) = _children(self._started[host].pid)
        return ["nsenter", "--target", str(first), "--net", "--uts", "--mount", "--pid", "--wd=/"]


@contextmanager
def running(folder: Path, count: int, *, has_slurm: bool) -> Iterator[Hosts]:
    """Hosts for the block, with Slurm if asked."""
    hosts = Hosts(folder, count, has_slurm)
    others: list[subprocess.Popen[bytes]] = []
    _remove_network()
    try:
        _make_network(hosts)
        _write(hosts)
        if has_slurm:
            others += _start_slurm(hosts)
        for host in range(1, count + 1):
            hosts.start(host)
        if has_slurm:
            wait_until(lambda: _is_idle(hosts, others))
        yield hosts
    finally:
        for host in tuple(hosts._started):
            hosts.cut_off(host)
        for each in others:
            each.kill()
            each.wait()
        _remove_network()


def _write(hosts: Hosts) -> None:
    folder = hosts.folder
    names = [f"t{host}" for host in range(1, hosts.count + 1)]
    lines = [f"{hosts.address(number)} {name}" for number, name in enumerate(names, 1)]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", f"{HEAD} head", *lines, ""]))
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "home").mkdir()  # of root, for who logs in by SSH: launchers write to it
    users = Path("/etc/passwd").read_text().splitlines(keepends=True)
    own = f"root:x:0:0:root:{folder}/home:/bin/bash\n"
    (folder / "passwd").write_text("".join([own, *(each for each in users if not each.startswith("root:"))]))
    (folder / "sshd_config").write_text(SSHD.format(folder=folder))
    Path("/run/sshd").mkdir(exist_ok=True)
    nodes = [
        f"NodeName={name} NodeAddr={hosts.address(number)} CPUs={CPUS} RealMemory=8000 State=UNKNOWN"
        for number, name in enumerate(names, 1)
    ]
    slurm = SLURM.format(
        head=HEAD, port=free_port(), folder=folder, nodes="\n".join(nodes), names=",".join(names)
    )
    (folder / "slurm.conf").write_text(slurm)


def _start_slurm(hosts: Hosts) -> list[subprocess.Popen[bytes]]:
    folder = hosts.folder
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    files = ("key-file=munge.key", "socket=munge.sock", "pid-file=munged.pid", "log-file=munged.log")
    options = [f"--{each.replace('=', f'={folder}/')}" for each in (*files, "seed-file=munge.seed")]
    munge = ["munged", "--foreground", "--force", *options]
    head = f"hostname head; mount --bind {folder}/hosts /etc/hosts; exec slurmctld -D -f {folder}/slurm.conf"
    commands = (munge, ["unshare", "--uts", "--mount", "sh", "-c", head])
    return [_quiet(command) for command in commands]


def _quiet(command: Sequence[str]) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=nowhere, stderr=nowhere, start_new_session=True)


def _is_idle(hosts: Hosts, daemons: Sequence[subprocess.Popen[bytes]]) -> bool:
    assert all(each.poll() is None for each in daemons), (hosts.folder / "slurmctld.log").read_text()
    asked = ["sinfo", "--noheader", "--Node", "--format=%t"]
    found = subprocess.run(asked, env=hosts.slurm, capture_output=True, text=True, check=False)
    return found.stdout.split() == ["idle"] * hosts.count


def _make_network(hosts: Hosts) -> None:
    _ip("link add", BRIDGE, "type bridge")
    _ip("addr add", f"{HEAD}/24 dev {BRIDGE}")
    _ip("link set", f"{BRIDGE} up")
    for host in range(1, hosts.count + 1):
        name = _network(host)
        _ip("netns add", name)
        _ip("link add", f"{name} type veth peer name eth0 netns {name}")
        _ip("link set", f"{name} master {BRIDGE} up")
        _ip(f"-n {name} addr add", f"{hosts.address(host)}/24 dev eth0")
        for device in ("eth0", "lo"):
            _ip(f"-n {name} link set", f"{device} up")
        _ip(f"-n {name} route add", f"default via {HEAD}")


def _remove_network() -> None:
    """Remove what an earlier run left, too, that was killed."""
    for host in range(1, 10):
        with suppress(subprocess.CalledProcessError):
            _ip("netns del", _network(host))
        with suppress(subprocess.CalledProcessError):
            _ip("link del", _network(host))
    with suppress(subprocess.CalledProcessError):
        _ip("link del", BRIDGE)


def _network(host: int) -> str:
    """The name of a host's network, and of its end on this machine: no other program's."""
    return f"{BRIDGE}{host}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *" ".join(words).split()], check=True, capture_output=True)


def _children(parent: int) -> list[int]:
    return [each.pid for each in psutil.Process(parent).children()]
