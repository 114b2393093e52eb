"""Processes that a copy can disturb: fio jobs that write to the same file
system, compute, or read a mapped file."""

import json
import os
import signal
import subprocess
import tempfile
import time

from servers import Failure

# What each neighbour does, as options of fio.
JOBS = {
    # Like etcd: appends to a preallocated log, with an fdatasync(2) after each.
    "append": ["--ioengine=psync", "--rw=write", "--bs=2k", "--size=256m",
               "--fdatasync=1", "--rate_iops=200"],
    # Like sanlock: overwrites one sector with O_DIRECT.
    "direct": ["--ioengine=psync", "--rw=randwrite", "--bs=512", "--size=1m",
               "--direct=1", "--overwrite=1", "--rate_iops=20"],
    "compute": ["--ioengine=cpuio", "--cpuload=100"],
    # Reads 20,000 random pages a second of a mapped file.
    "hot": ["--ioengine=mmap", "--rw=randread", "--bs=4k", "--size=300m",
            "--invalidate=0", "--norandommap", "--thinktime=10ms",
            "--thinktime_blocks=200"],
}
PATIENCE = 20       # seconds, for fio to start
INTERRUPTED = 128   # status of fio after SIGINT


def fio_result(text):
    """The JSON that fio printed, possibly after messages."""
    return json.loads(text if text[:1] == "{" else text[text.index("\n{"):])


class Neighbours:
    """One fio that runs some of JOBS until stop(), or to the end of a "with"
    block."""

    def __init__(self, folder, names):
        self.folder, self.names = folder, names
        self.process = None
        self.output = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
        if self.output:
            self.output.close()

    def path(self, name):
        """The file of a job."""
        return os.path.join(self.folder, name)

    def command(self, *options):
        """The command line of fio."""
        jobs = [word for name in self.names
                for word in (f"--name={name}", f"--filename={name}",
                             *JOBS[name])]
        return ["fio", "--output-format=json", "--thread=1",
                f"--directory={self.folder}", *options, *jobs]

    def lay_out(self):
        """Create the files of the jobs.  The log is a new one each time, since
        fdatasync(2) does less work where the log has been written before."""
        if os.path.exists(self.path("append")):
            os.unlink(self.path("append"))
        subprocess.run(self.command("--create_only=1"), check=True,
                       stdin=subprocess.DEVNULL, capture_output=True,
                       text=True)

    def start(self, cgroup=None):
        """Start the jobs, in this folder of a cgroup if there is one."""
        # stop() ends fio; --runtime is more than any load takes.
        command = self.command("--time_based", "--runtime=86400")
        if cgroup:
            command = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"',
                       cgroup, *command]
        self.output = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=self.output)
        end = time.monotonic() + PATIENCE
        while not self.runs():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failure(f"fio did not start: {' '.join(command)}")
            time.sleep(0.01)

    def runs(self):
        """Return true once fio has a thread for each job, beside the main
        thread and the one that fio calls its helper."""
        return (len(os.listdir(f"/proc/{self.process.pid}/task"))
                >= len(self.names) + 2)

    def stop(self):
        """End fio, and return its figures, by the name of the job."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait()
        self.process = None
        self.output.seek(0)
        text = self.output.read()
        if status != INTERRUPTED:
            raise Failure(f"fio failed beside the copy: status {status}: "
                          f"{' '.join(self.command())}")
        jobs = {job["jobname"]: job for job in fio_result(text)["jobs"]}
        for name, job in jobs.items():
            if job["error"]:
                raise Failure(f"the neighbour \"{name}\" of the copy failed: "
                              f"{os.strerror(job['error'])}")
        return jobs


def figures(jobs):
    """The figures to compare, from what Neighbours.stop() returned."""
    found = {"neighbours_cpu_s": sum(map(cpu_seconds, jobs.values()))}
    if "append" in jobs:
        job = jobs["append"]
        found.update(appends=job["write"]["iops"],
                     **milliseconds("fdatasync", job["sync"]["lat_ns"]))
    if "direct" in jobs:
        found.update(milliseconds("direct",
                                  jobs["direct"]["write"]["clat_ns"]))
    if "compute" in jobs:
        job = jobs["compute"]
        found.update(compute_percent=job["usr_cpu"] + job["sys_cpu"],
                     compute_lost_s=(job["job_runtime"] / 1000
                                     - cpu_seconds(job)))
    if "hot" in jobs:
        job = jobs["hot"]
        found.update(major_faults=job["majf"],
                     **milliseconds("hot", job["read"]["clat_ns"]))
    return found


def cpu_seconds(job):
    """CPU time of a job."""
    return (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000


def milliseconds(name, latency):
    """Percentiles of fio as figures; none if fio has measured nothing."""
    percentile = latency.get("percentile")
    if not percentile:
        return {}
    return {f"{name}_p50_ms": percentile["50.000000"] / 1e6,
            f"{name}_p99_ms": percentile["99.000000"] / 1e6,
            f"{name}_p999_ms": percentile["99.900000"] / 1e6,
            f"{name}_max_ms": latency["max"] / 1e6}
