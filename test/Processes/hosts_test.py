#!/usr/bin/env python3
"""scripts/hosts: descriptions, links, quotas, and that nothing of it stays.
  hosts_test.py SCRIPT
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = os.path.abspath(sys.argv.pop(1))

TALK = """
import socket, sys, time
if sys.argv[1] == "serve":
    server = socket.create_server((sys.argv[2], 5000))
    print("ready", flush=True)
    peer, _ = server.accept()
    while True:
        data = peer.recv(1 << 20)
        if not data:
            break
        peer.sendall(data[-1:])
else:
    for _ in range(100):
        try:
            peer = socket.create_connection((sys.argv[2], 5000), timeout=5)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    def turn(data):
        begin = time.monotonic()
        peer.sendall(data)
        while not peer.recv(1 << 16).endswith(b"!"):
            pass
        return time.monotonic() - begin
    alone = min(turn(b"!") for _ in range(10))
    print(alone, turn(bytes(2_000_000) + b"!"))
"""


class Hosts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.work = pathlib.Path(temporary.name)
        (self.work / "talk.py").write_text(TALK)

    def start(self, description, *command, launch="none", **arguments):
        file = self.work / "description"
        file.write_text(description)
        return subprocess.Popen(
            [SCRIPT, f"--launch={launch}", str(file), "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **arguments)

    def run_hosts(self, *arguments, **named):
        process = self.start(*arguments, **named)
        out, err = process.communicate(timeout=30)
        if process.returncode == 77 and "skipped" in err:
            self.skipTest(err.strip())
        return process.returncode, out, err

    def refused(self, description, message):
        code, _, err = self.run_hosts(description, "true")
        self.assertEqual(code, 2)
        self.assertIn(message, err)

    def test_wrong_descriptions(self):
        self.refused("host a\n", "expected 2 to 16 hosts, found 1")
        self.refused("host a\nhost a\n", ":2: there is a host 'a' already")
        self.refused("host a\nhost b\nlink a c\n", ":3: there is no host 'c'")
        self.refused("host a\nhost b\nlink a a\n", "no link to itself")
        self.refused("host a\nhost b\nlink a b rate=1\n",
                     ":3: expected a number above 0 with one of kbit, mbit, "
                     "gbit, found '1'")
        self.refused("host a\nhost b\nlink a b speed=1gbit\n",
                     "expected rate= or delay=, found 'speed=1gbit'")
        self.refused("host a\nhost B\n", "found 'B'")
        most = 0.8 * os.cpu_count()
        self.refused(f"host a cpus={most}\nhost b cpus=0.1\n",
                     f"add up to {most + 0.1:g}, expected at most {most:g}")

    def talk(self, link):
        code, out, err = self.run_hosts(
            f"host a\nhost b\nlink b a {link}\n", "sh", "-c",
            f"$GALVATRON_HOSTS/on b {sys.executable} talk.py serve b & "
            f"$GALVATRON_HOSTS/on a {sys.executable} talk.py ask b",
            cwd=self.work)
        self.assertEqual(code, 0, err)
        return [float(word) for word in out.split() if word != "ready"]

    def test_rate(self):
        turn, bulk = self.talk("rate=40mbit")
        self.assertLess(turn, 0.05)
        # 16 Mbit, but for the burst.
        self.assertGreater(bulk, 0.35)

    def test_delay(self):
        turn, _ = self.talk("delay=30ms")
        self.assertGreater(turn, 0.06)
        turn, bulk = self.talk("delay=30ms rate=40mbit")
        self.assertGreater(turn, 0.06)
        self.assertGreater(bulk, 0.39)

    def test_cut(self):
        connect = (f"$GALVATRON_HOSTS/on a {sys.executable} -c \"import socket;"
                   "socket.create_connection(('b', 5000), timeout=0.5)\" "
                   "2>&1 | tail -n 1")
        code, out, err = self.run_hosts(
            "host a\nhost b\n", "sh", "-c",
            f"{connect}; $GALVATRON_HOSTS/cut b a; {connect};"
            f"$GALVATRON_HOSTS/mend a b; {connect}")
        self.assertEqual(code, 0, err)
        refused, cut, mended = out.splitlines()
        self.assertIn("refused", refused)
        self.assertIn("timed out", cut)
        self.assertIn("refused", mended)

    def test_quota(self):
        work = ("import time; begin = time.monotonic()\n"
                "while time.process_time() < 0.3: pass\n"
                "print(time.monotonic() - begin)")
        code, out, err = self.run_hosts(
            "host a cpus=0.2 processes=2\nhost b\n", "sh", "-c",
            f"[ $RANK -gt 1 ] || {sys.executable} -c '{work}'",
            launch="torchrun")
        self.assertEqual(code, 0, err)
        # Some 0.55 s of processor time at 0.2 a second.
        self.assertGreater(max(map(float, out.split())), 1.7)

    def test_launch(self):
        code, out, err = self.run_hosts(
            "host a processes=2\nhost b\n", "sh", "-c",
            "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $(hostname);"
            "exit $RANK", launch="torchrun")
        self.assertIn(code, (1, 2))
        self.assertEqual(sorted(out.splitlines()),
                         ["0 0 3 a a", "1 1 3 a a", "2 0 3 a b"])

    def remains(self, process):
        """Processes and control groups of an ended command."""
        for _ in range(50):
            names = [path.read_bytes() for path in
                     pathlib.Path("/proc").glob("[0-9]*/cmdline")
                     if path.exists()]
            found = [name for name in names if b"sleep\x0031.7" in name]
            if not found:
                break
            time.sleep(0.1)
        return found + list(pathlib.Path("/sys/fs/cgroup").glob(
            f"**/galvatron-hosts-{process}-*"))

    def test_nothing_stays(self):
        description = "host a cpus=0.1\nhost b cpus=0.1\nlink * * delay=1ms\n"
        self.run_hosts(description, "true")
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start(description, "sh", "-c",
                                 "echo started; exec sleep 31.7",
                                 launch="torchrun")
            process.stdout.readline()
            process.send_signal(number)
            process.communicate(timeout=10)
            self.assertEqual(process.returncode, code)
            self.assertEqual(self.remains(process.pid), [])
        process = self.start(description, "sh", "-c",
                             "trap '' INT TERM; echo started; sleep 31.7",
                             launch="torchrun")
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.remains(process.pid), [])
        # Killed, it cannot remove its groups; processes end, and the next
        # command removes them.
        process = self.start(description, "sh", "-c",
                             "echo started; exec sleep 31.7",
                             launch="torchrun")
        process.stdout.readline()
        process.kill()
        process.communicate(timeout=10)
        self.run_hosts(description, "true")
        self.assertEqual(self.remains(process.pid), [])


if __name__ == "__main__":
    unittest.main()
