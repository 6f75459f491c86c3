"""on_terminal.py COLUMNS COMMAND...: runs a command on a terminal of so many
columns and prints what it shows there, a line for every return of the cursor;
escape sequences as in <1m>."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios

process, terminal = pty.fork()
if process == 0:
    size = struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0)
    fcntl.ioctl(1, termios.TIOCSWINSZ, size)
    os.environ["TERM"] = "xterm"
    os.environ.pop("COLUMNS", None)
    os.execvp(sys.argv[2], sys.argv[2:])
shown = b""
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:  # the other end is closed
        break
    if not part:
        break
    shown += part
text = shown.decode().replace("\r\n", "\n").replace("\r", "\n")
print(re.sub("\x1b\\[([0-9;]*[a-zA-Z])", "<\\1>", text))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
