"""A private Slurm: its daemons, configured and stored in one folder, on free ports."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import psutil
from starting import wait_until

#: Debian's names of the daemons.
DAEMONS = ("munged", "slurmctld", "slurmd")
_SBIN = os.pathsep.join(("/usr/sbin", "/sbin"))
_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=3
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 CoresPerSocket=4 RealMemory=4000
PartitionName=ci Nodes=ALL Default=YES OverSubscribe=YES MaxTime=60
"""


def missing() -> str | None:
    """The reason why Slurm cannot run here, or None."""
    gone = [name for name in (*DAEMONS, "sbatch", "srun") if not which(name)]
    if gone:
        return f"no {', '.join(gone)}: apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "needs root: slurmd starts jobs as their users"


def which(name):
    return shutil.which(name) or shutil.which(name, path=_SBIN)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Slurm:
    """A running cluster of one node (a context manager). ``environ`` is the environment of its
    commands."""

    def __init__(self, folder: Path):
        self.folder, self._daemons = Path(folder), []
        self.environ = {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        folder = self.folder
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        ports = {"ctld_port": free_port(), "port": free_port()}
        (folder / "slurm.conf").write_text(_CONF.format(host=host, folder=folder, **ports))
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
        self._daemon(
            "munged -F -f --key-file={0}/munge.key --socket={0}/munge.socket --seed-file={0}/seed "
            "--pid-file={0}/munged.pid --log-file={0}/munged.log"
        )
        wait_until((folder / "munge.socket").exists, 30, why=self.logs)
        self._daemon("slurmctld -D -f {0}/slurm.conf")
        self._daemon(f"slurmd -D -f {{0}}/slurm.conf -N {host}")
        idle = lambda: "idle" in self.output("sinfo", "--noheader", "--format=%T")
        wait_until(idle, 30, why=self.logs)

    def _daemon(self, command):
        name, *words = (word.format(self.folder) for word in command.split())
        with open(self.folder / f"{name}.out", "wb") as out:
            daemon = subprocess.Popen(
                [which(name), *words],
                env={**os.environ, **self.environ},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._daemons.append(daemon)

    def logs(self) -> str:
        paths = [*self.folder.glob("*.out"), *self.folder.glob("*.log")]
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in paths)

    def output(self, *command, **keywords) -> str:
        """The output of a command of Slurm; raises with its error if it fails, except for sinfo,
        which may be too early."""
        done = subprocess.run(
            [str(word) for word in command],
            env={**os.environ, **self.environ, **keywords.pop("env", {})},
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
            **keywords,
        )
        if done.returncode and command[0] != "sinfo":
            raise RuntimeError(f"{command}: {done.stderr}\n{self.logs()}")
        return done.stdout

    def jobs(self) -> str:
        """The jobs that wait or run."""
        return self.output("squeue", "--noheader", "--format=%i %T")

    def wait(self, job, seconds=90):
        """Wait until a job has left the queue."""
        wait_until(lambda: job not in self.jobs(), seconds, why=self.logs)

    def __exit__(self, *exc):
        mine = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for process in psutil.process_iter():  # slurmstepd, and whatever a job left
            try:
                with open(f"/proc/{process.pid}/environ", "rb") as file:
                    ours = mine in file.read().split(b"\0")
                if ours or str(self.folder) in " ".join(process.cmdline()):
                    if process.pid != os.getpid():
                        process.kill()
            except (OSError, psutil.Error):
                continue  # it has just ended
