"""Runs a command with its standard error on a terminal, interrupts it once a
line of progress is there, and prints that line, the exit code and the output."""

import os
import pty
import signal
import subprocess
import sys
import tempfile

reader, writer = pty.openpty()
with tempfile.TemporaryFile() as output:
    process = subprocess.Popen(sys.argv[1:], stdout=output, stderr=writer)
    os.close(writer)
    errors = b""
    interrupted = False
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        errors += part
        if not interrupted and b"open" in errors:
            print("progress:", errors.split(b"\x1b")[0].strip().decode())
            process.send_signal(signal.SIGINT)
            interrupted = True
    print("exit code:", process.wait())
    output.seek(0)
    print(output.read().decode())
print(errors.split(b"\x1b[K")[-1].decode())
