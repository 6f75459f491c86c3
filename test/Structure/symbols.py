#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime leaves the process that it is in alone, as its symbols show.

    symbols.py LIBGRT PLUGIN...

- The library defines nothing for others but what is its own (names of the C
  interface, namespaces grt and galvatron), so no allocator and nothing of the
  libraries that it is made with.
- It calls nothing that changes the environment.
- A plug-in defines what it is asked for by name, and nothing else.
"""

import re
import subprocess
import sys

OWN = re.compile(r"grt_|_Z[A-Za-z]*\d*(?:h\w*_)?N?K?(?:3grt|9galvatron)|"
                 r"_ZT[hvc][\dn_h]*N3grt")
ENVIRONMENT = {"setenv", "putenv", "unsetenv", "clearenv"}
ENTRIES = {"grt_backend_get", "grt_transport_open"}


def symbols(path, which):
    lines = subprocess.run(["nm", "-D", which, path], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def complaints(library, plugins):
    defined = symbols(library, "--defined-only")
    if "grt_session_create" not in defined:
        yield f"{library}: expected 'grt_session_create' among its symbols"
    for name in sorted(defined):
        if not OWN.match(name):
            yield f"{library}: defines '{name}' for others"
    for name in sorted(symbols(library, "--undefined-only") & ENVIRONMENT):
        yield f"{library}: calls '{name}'"
    for plugin in plugins:
        for name in sorted(symbols(plugin, "--defined-only") - ENTRIES):
            yield f"{plugin}: defines '{name}' for others"
        for name in sorted(symbols(plugin, "--undefined-only") & ENVIRONMENT):
            yield f"{plugin}: calls '{name}'"


def main():
    found = list(complaints(sys.argv[1], sys.argv[2:]))
    print("\n".join(found) or "the symbols are the runtime's own")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
