"""However a ``drbench run`` ends, it leaves no process and no file, in its own /dev/shm."""

import shutil
import sys

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(400)]

#: Starts a run that hangs, ends one of its processes, and prints what is left, and for how long.
STRIKE = """
import os, psutil, signal, subprocess, sys, time
who, number = sys.argv[1], int(sys.argv[2])
run = "run -p 3 -m 16 -n 16 -k 16 --iters 1 -o warmup=0 --threads 1".split()
process = subprocess.Popen([sys.executable, "-m", "drbench", *run],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
until = time.monotonic() + 240
while not os.path.exists("hanging"):
    assert time.monotonic() < until and process.poll() is None
    time.sleep(0.02)
family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
words = {member: member.cmdline() for member in family}
victims = {
    "command": family[:1],
    "mpiexec": [each for each in family if "mpiexec" in words[each][0]],
    "rank": [each for each in family[1:] if "drbench" in words[each] and "-n" not in words[each][:2]
             and "mpiexec" not in words[each][0]][-1:],
    "all": family,
}[who]
for victim in victims:
    try:
        victim.send_signal(number)
    except psutil.NoSuchProcess:
        assert who == "all"  # it went with one that was struck before

def runs(process):
    try:
        return process.is_running() and process.status() != "zombie"
    except psutil.NoSuchProcess:
        return False

left, until = True, time.monotonic() + 60
while left and time.monotonic() < until:
    time.sleep(0.05)
    process.poll()
    alive = [words[each] for each in family if runs(each)]
    left = alive + (os.listdir("/dev/shm") if who != "all" else [])
if who == "all":  # nobody was left to clear up: the next run does
    subprocess.run([sys.executable, "-m", "drbench", *run[:-2], "--threads", "1"],
                   env={**os.environ, "DRBENCH_TEST_FAULT": "chatter"}, stdout=subprocess.DEVNULL)
    left = os.listdir("/dev/shm")
print(left)
"""


@pytest.mark.parametrize(
    "who, number",
    [
        *(("command", 9), ("mpiexec", 9), ("rank", 9), ("all", 9)),
        *(pytest.param("command", number, marks=pytest.mark.thorough) for number in (15, 2, 1)),
    ],
)
def test_nothing_is_left_of_a_run_whoever_is_killed(process, mpich, fault, who, number):
    own = "mount -t tmpfs -o size=512m tmpfs /dev/shm && exec "
    inside = ["unshare", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or process(*inside, f"{own}true").returncode:
        pytest.skip("a /dev/shm of its own cannot be made here (needs root and unshare)")
    ended = process(
        *(*inside, f'{own}"$@"', "sh", sys.executable, "-c", STRIKE, who, number),
        env=fault("hang"),
        timeout=320,
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["[]"]), ended.stderr
