"""Recorded outputs of fio 3.33, iozone 3.489 and QEMU 7.2 become the right figures; damaged ones become errors."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from lab import account, fio, iozone, vm
from lab.guest import libraries
from lab.process import ToolError
from lab.studies.failure import LATENCIES_MIN, percentiles
from lab.studies import provision
from lab.studies import vm as vm_study
from lab.studies.migrate import Migrate

DATA = Path(__file__).parent / "data"


def recorded(name):
    return (DATA / name).read_text()


# --- fio


def test_fio_writes_alone_have_percentiles():
    document = fio.parse(recorded("fio-randwrite.json"))
    job = document["jobs"][0]["write"]
    values = fio.metrics(document)
    assert values["iops"] == job["iops"] and values["bandwidth"] == job["bw_bytes"]
    assert values["latency_p99"] == job["clat_ns"]["percentile"]["99.000000"] / 1000
    assert values["latency_mean"] <= values["latency_max"]
    assert "read_iops" not in values
    assert fio.bytes_written(document) == job["total_ios"] * 4096
    assert fio.operations(document) == job["total_ios"]


def test_fio_mixed_load_is_the_sum_and_claims_no_percentiles():
    document = fio.parse(recorded("fio-randrw.json"))
    job = document["jobs"][0]
    values = fio.metrics(document)
    assert values["iops"] == job["read"]["iops"] + job["write"]["iops"]
    assert values["read_iops"] == job["read"]["iops"]
    assert "latency_p99" not in values
    low, high = sorted(job[side]["clat_ns"]["mean"] / 1000 for side in ("read", "write"))
    assert low <= values["latency_mean"] <= high


def with_bins(document, side, bins):
    """The recorded document with these bins (us -> operations) on one side."""
    s = document["jobs"][0][side]
    s["clat_ns"]["bins"] = {str(int(us * 1000)): n for us, n in bins.items()}
    s["total_ios"] = sum(bins.values())
    return document


def test_percentiles_of_a_mix_come_from_the_bins_of_both_sides():
    document = with_bins(with_bins(fio.parse(recorded("fio-randrw.json")), "read", {10: 9_900, 20: 90, 50: 10}), "write", {15: 9_000, 100: 980, 500: 20})
    values = fio.metrics(document)
    # 20,000 in all: the 10,000th is a write of 15 us, the 19,800th one of 100 us; beyond the 19,980th lie 20 of 500 us.
    assert (values["latency_p50"], values["latency_p99"], values["latency_p999"]) == (15, 100, 100)
    del document["jobs"][0]["write"]["clat_ns"]["bins"]
    assert "latency_p99" not in fio.metrics(document)


def test_a_tail_of_too_few_operations_is_not_claimed():
    document = json.loads(recorded("fio-randwrite.json"))
    side = document["jobs"][0]["write"]
    side["clat_ns"]["percentile"] |= {"99.900000": 7_000_000}
    side["total_ios"] = 9_999
    assert "latency_p999" not in fio.metrics(document)
    side["total_ios"] = 10_000
    assert fio.metrics(document)["latency_p999"] == 7000


def test_distributions_are_kept_in_coarser_bins_with_all_operations():
    bins = {us: 1 for us in range(1, 3000)}
    kept = fio.coarser(bins)
    assert sum(n for _, n in kept) == 2999 and kept[-1][0] == 2999
    assert [us for us, _ in kept] == sorted(us for us, _ in kept) and 70 < len(kept) < 110
    # No operation moves by more than an eighth of its latency.
    assert fio.percentile(dict(kept), 50) == pytest.approx(1500, rel=1 / 8)


def test_the_course_of_jobs_and_directions_is_their_sum():
    """Two jobs of 100 reads/s and 50 writes/s each for 0.4 s; a line is the rate since the last one of its direction."""
    job = "".join(f"{at}, 100, 0, 0, 0\n{at}, 50, 1, 0, 0\n" for at in (100, 200, 300, 400))
    assert fio.course(job + job, 100) == [300] * 4
    # A line that comes late counts where its time lay: 100/s from 0.1 to 0.25 s.
    assert fio.course("100, 40, 0, 0, 0\n250, 100, 0, 0, 0\n300, 0, 0, 0, 0\n", 100) == pytest.approx([40, 100, 50])
    assert fio.course("", 100) == fio.course("\n", 100) == []
    with pytest.raises(fio.FioError, match="line 1"):
        fio.course("rubbish\n", 100)


def test_fio_writes_its_course_and_bins(tmp_path):
    """The real fio: what it did in all is what its course and its distribution add up to."""
    argv = fio.logged(fio.command([[f"--filename={tmp_path}/{n}", "--ioengine=psync"] for n in "ab"], rw="randrw", bs=4096, size=1 << 20, read=70, runtime=0.6), f"{tmp_path}/log", 0.6)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    document = fio.parse(done.stdout)
    curves = fio.curves(document, (tmp_path / "log_iops.log").read_text(), 0.6)
    assert sum(n for side in curves.distribution.values() for _, n in side) == fio.operations(document)
    assert curves.step == 0.1 and len(curves.course) >= 3
    assert sum(curves.course) * curves.step <= fio.operations(document) * 1.5
    assert fio.metrics(document)["latency_p50"] <= fio.metrics(document)["latency_p99"]


def test_fio_messages_around_the_json_do_no_harm():
    text = "fio: connected to NBD server\n" + recorded("fio-randwrite.json") + "\nfio: one more word\n"
    assert fio.metrics(fio.parse(text)) == fio.metrics(fio.parse(recorded("fio-randwrite.json")))


def test_fio_that_failed_is_an_error_and_no_sample_of_zero():
    with pytest.raises(fio.FioError):
        fio.metrics(fio.parse(recorded("fio-error.json")))


@pytest.mark.parametrize("text", ["", "fio: nothing\n", "{", '{"jobs": []}', "[]", recorded("fio-randwrite.json")[:2000]])
def test_fio_output_that_is_damaged_is_an_error(text):
    with pytest.raises(fio.FioError):
        fio.parse(text)


def test_fio_job_with_an_error_number_is_an_error():
    document = json.loads(recorded("fio-randwrite.json"))
    document["jobs"][0]["error"] = 5
    with pytest.raises(fio.FioError, match="error 5"):
        fio.metrics(document)


def test_longest_gap_counts_from_the_start_and_to_the_end():
    assert fio.longest_gap([1.0, 1.5, 4.0, 4.1], 0.8, 4.2) == 2.5
    assert fio.longest_gap([4.0], 0.0, 4.5) == 4.0
    assert fio.longest_gap([], 1.0, 3.0) == 2.0
    assert fio.longest_gap([0.0, 9.0], 1.0, 3.0) == 2.0


def test_completion_log():
    assert fio.completion_times("1500, 250000, 1, 4096, 0, 0\n2500, 1000000000, 1, 4096, 0, 0\n") == [(1.5, 0.00025), (2.5, 1.0)]
    with pytest.raises(fio.FioError, match="line 2"):
        fio.completion_times("1500, 250000, 1, 4096, 0\nrubbish\n")


def test_fio_counts_from_the_end_of_its_ramp():
    document = {"timestamp_ms": 1_000_000_500, "jobs": [{"read": {"runtime": 0}, "write": {"runtime": 2000}}]}
    assert fio.window(document, wall=1_000_000.7, monotonic=50.0) == pytest.approx((47.8, 49.8))


# --- accounting


def seen(at, cpu, written=0, pid=1):
    return account.Snapshot(at, {pid: cpu}, {pid: written})


def timeline(*looks):
    left = list(looks)
    made = account.Timeline([1], look=lambda _pids: left.pop(0))
    made.looks += left
    return made


def test_what_servers_used_is_counted_where_fio_counted():
    """1.2 s of work after 1 s of start: the whole process' average said 57 us where longer runs said 73."""
    line = timeline(seen(0, 10.0, 0), seen(1, 10.0, 100), seen(2, 11.0, 1100), seen(3, 12.0, 2100))
    used = line.between(1.0, 3.0)
    assert (used.seconds, used.cpu_s, used.written) == (2.0, 2.0, 2000)
    half = line.between(1.5, 2.0)
    assert (half.cpu_s, half.written) == (0.5, 500)
    # What lies outside of the looks is not made up.
    assert line.between(2.0, 9.0).seconds == 1.0 and line.between(5.0, 6.0) is None


def test_a_server_that_ended_gives_no_figure():
    assert timeline(seen(0, 1.0), seen(1, 0.5, pid=2)).between(0.0, 1.0) is None


def test_a_timeline_looks_until_it_is_left():
    with account.Timeline([os.getpid()]) as line:
        while len(line.looks) < 4:
            time.sleep(0.01)
    ends = [x.at for x in line.looks]
    assert ends == sorted(ends) and line.between(ends[0], ends[-1]) is not None


# --- iozone


def test_iozone_table():
    values = iozone.parse(recorded("iozone-4k.txt"))
    assert values == {"write": 310964 * 1024, "rewrite": 292306 * 1024, "read": 1178512 * 1024, "reread": 1179537 * 1024,
                      "randread": 173968 * 1024, "randwrite": 195313 * 1024}


@pytest.mark.parametrize("text", ["", "rewrite\n", recorded("iozone-4k.txt")[:-260], "Can not open temp file: /x\nrewrite\n 1 2 3 4\n"])
def test_iozone_without_figures_is_an_error(text):
    with pytest.raises(iozone.IozoneError):
        iozone.parse(text)


# --- QMP: the recorded conversation of a migration with a mirrored disk, played back


class Played:
    """A machine that answers as recorded, and insists on the recorded commands."""

    def __init__(self, conversation, name):
        self.left = [c for c in conversation if c.get("machine") == name]
        self.last = {}

    def qmp(self, command, **arguments):
        if not self.left or self.left[0]["execute"] != command:
            # A poll more than was recorded gets the last answer again.
            assert command in self.last, f"not in the recording: {command}"
            return self.last[command]
        entry = self.left.pop(0)
        if "path" not in json.dumps(entry["arguments"]) and command != "migrate":
            assert entry["arguments"] == arguments
        self.last[command] = entry["return"]
        return entry["return"]


class Study(Migrate):
    def __init__(self, scratch):
        class Settings:
            limit = 5.0

        class Config:
            migrate = Settings()

        class Scratch:
            path = scratch

        self.config, self.scratch = Config(), Scratch()


def test_migration_with_a_mirrored_disk_follows_the_recorded_conversation(tmp_path):
    conversation = json.loads(recorded("qmp-migrate-local.json"))
    source, target = Played(conversation, "source"), Played(conversation, "target")
    target.qmp("query-status")
    study = Study(tmp_path)
    assert study._mirror(source, target) == 1074135040
    info = study._move(source, "unix:x", mirrored=True)
    assert (info["status"], info["downtime"]) == ("completed", 76)
    assert [c["execute"] for c in source.left] == ["quit"]


def test_a_failed_migration_says_why(tmp_path):
    class Broken:
        def qmp(self, command, **_):
            return {"status": "failed", "error-desc": "no route"} if command == "query-migrate" else {}

    with pytest.raises(ToolError, match="no route"):
        Study(tmp_path)._move(Broken(), "unix:x", mirrored=False)


def test_a_target_that_still_takes_in_is_waited_for():
    class Target:
        answers = [{"running": False, "status": "inmigrate"}] * 3 + [{"running": True, "status": "running"}]

        def qmp(self, _):
            return self.answers.pop(0)

    target = Target()
    Migrate._await_running(None, target)
    assert target.answers == []


# --- /proc


def test_processor_time_of_a_process_whose_name_has_brackets():
    stat = "77 (a ) b (c) S 1 77 77 0 -1 4194560 1 2 3 4 250 150 7 8 20 0 3 0 100 200 300"
    assert account.cpu_seconds(stat) == pytest.approx(400 / account.TICK)


def test_bytes_written_are_less_what_was_cancelled():
    assert account.bytes_written("rchar: 1\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n") == 4096


def test_usage_is_unknown_when_a_server_ended_meanwhile():
    before = account.Snapshot(0.0, {1: 1.0, 2: 1.0}, {1: 0, 2: 0})
    assert account.used(before, account.Snapshot(1.0, {1: 2.0}, {1: 10})) is None
    found = account.used(before, account.Snapshot(2.0, {1: 2.0, 2: 1.5}, {1: 10, 2: 5}))
    assert (found.cpu_s, found.cores, found.written) == (1.5, 0.75, 15)


def test_libraries_out_of_ldd():
    text = "\tlinux-vdso.so.1 (0x1)\n\tlibaio.so.1 => /lib/x/libaio.so.1 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n\tlibgone.so => not found\n"
    assert libraries(text) == ["/lib/x/libaio.so.1", "/lib64/ld-linux-x86-64.so.2"]


# --- failure


def test_the_latencies_of_a_phase_are_in_microseconds_and_need_enough_of_them():
    found = percentiles("before", [0.001] * 98 + [0.5, 0.7])
    assert found == {"before_latency_p50": pytest.approx(1000), "before_latency_p99": pytest.approx(700_000)}
    assert percentiles("after", [0.001] * (LATENCIES_MIN - 1)) == {}


def test_the_works_of_a_vm_are_jobs_that_follow_one_another():
    words = vm_study.command("rand", 4096, 8, 10 << 20, 2.0, 0).split(",")
    assert words[0] == "filename=/dev/vda" and [w for w in words if w.startswith("name=")] == ["name=randread1", "name=randwrite2"]
    assert words.count("stonewall=1") == 2 and words.count("bs=4096") == 2 and words.count("bs=1048576") == 1 and words.count("time_based=1") == 2
    assert all(len(vm_study.command(w, 262144, 32, 1 << 40, 3600.0, 999)) < 1500 for w in vm_study.WORKS), "the kernel's command line holds 2,048 characters"


def test_a_vm_s_report_gives_a_result_for_each_operation():
    job = json.loads((DATA / "fio-randwrite.json").read_text())["jobs"][0]
    case = {"work": "rand", "bs": 4096}
    found = vm_study.results(case, json.dumps({"jobs": [job, job, job]}))
    assert [r.case["op"] for r in found] == ["randread", "randwrite"] and found[0].values["iops"] > 0 and not found[0].raw and found[1].raw
    with pytest.raises(fio.FioError, match="2 jobs in the guest's report, not 3"):
        vm_study.results(case, json.dumps({"jobs": [job, job]}))


def test_an_image_is_as_large_as_asked_and_has_no_holes(tmp_path):
    image = tmp_path / "image"
    image.write_bytes(b"root" * 100)
    provision.append_data(image, (9 << 20) + 5)
    data = image.read_bytes()
    assert len(data) == (9 << 20) + 5 and data.startswith(b"root") and b"\0" * 64 not in data[400:]


def test_time_of_the_machine_by_mode():
    text = f"cpu  {100 * account.TICK} 0 {20 * account.TICK} 900 5 {account.TICK} {2 * account.TICK} 0 {40 * account.TICK} 0\ncpu0 1 2 3\n"
    assert account.machine(text) == {"cpu_user": 60, "cpu_system": 20, "cpu_softirq": 3, "cpu_guest": 40}


def test_nobody_waits_for_the_monitor_of_a_guest_that_has_powered_off(tmp_path):
    """Deleting a VM then took 30 s more than it did."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(ToolError, match="QEMU has ended"):
        vm.connect(str(tmp_path / "qmp"), ended)


def test_clients_are_reported_apart_and_their_sum_is_the_whole():
    argv = fio.command([["--ioengine=null", "--size=1M", "--rate_iops=50"], ["--ioengine=null", "--size=1M", "--rate_iops=200"]], rw="randread", bs=4096, runtime=1.0, apart=True)
    document = fio.parse(subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout)
    slow, fast = fio.rates(document)
    assert slow < fast and fio.metrics(document)["iops"] == pytest.approx(slow + fast)
    assert fio.metrics(document)["latency_p50"] > 0 and fio.operations(document) == sum(j["read"]["total_ios"] for j in document["jobs"])
