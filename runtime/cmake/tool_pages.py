#!/usr/bin/env python3
"""Manual pages and bash completions of tools, from what their --help prints.

tool_pages.py --out=PREFIX/share TOOL...

--help is made of a tool's one table of options; this reads it back, so that
pages and completions cannot differ from it.
"""

import argparse
import os
import re
import subprocess
import sys

# What is indented further goes on with the text of the option before.
OPTION = re.compile(r"^ {1,6}(-{1,2}[A-Za-z][\w-]*)(\[?=\S+| [^\s-]\S*)?"
                    r"(?:, (-{1,2}[\w-]+))?(?:  +(.*))?$")
# "on|off": these are all the values; "FILE|NAME" is not, nor "prog.gvx".
VALUES = re.compile(r"^=([a-z0-9][\w+-]*(?:\|[a-z0-9][\w+-]*)*)$")


def read_help(tool):
    """Overview, usage, and options: (name, value, text)."""
    text = subprocess.run([tool, "--help"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout
    overview, usage, options, prose, paragraphs = "", "", [], [], 0
    for line in text.splitlines():
        if line.startswith("OVERVIEW:"):
            overview = line[len("OVERVIEW:"):].strip()
        elif re.match(r"usage:", line, re.IGNORECASE):
            usage = line.split(":", 1)[1].strip()
        elif options and options[-1][1].endswith("|"):
            # A list of values goes on.
            options[-1][1] += line.strip()
        elif match := OPTION.match(line):
            name, value, other, said = match.groups()
            options.append([name, (value or "").strip(), said or ""])
            if other:
                options.append([other, "", ""])
        elif line.startswith("   ") and options and line.strip():
            options[-1][2] = (options[-1][2] + " " + line.strip()).strip()
        elif not line:
            paragraphs += 1
        elif not line.startswith(" ") and paragraphs == 1:
            prose.append(line.strip())
    if not overview and prose:
        overview = " ".join(prose)
    return overview, usage, options


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def manual(name, version, overview, usage, options):
    title = overview.split(". ")[0].rstrip(".")
    lines = [f'.TH {name.upper()} 1 "" "Galvatron {version}"', ".SH NAME",
             roff(f"{name} - {title[:1].lower() + title[1:]}"),
             ".SH SYNOPSIS", roff(usage), ".SH DESCRIPTION", roff(overview),
             ".SH OPTIONS"]
    for option, value, text in options:
        lines += [".TP", "\\fB" + roff(option) + "\\fR" + roff(value),
                  roff(text)]
    return "\n".join(lines) + "\n"


def completion(name, options):
    # An option with a value ends with its sign, without a space behind.
    words = " ".join(option + ("=" if value.startswith("=") else "")
                     for option, value, _ in options)
    lists = "".join(
        f"""  {option}=*) COMPREPLY=($(compgen -W "{match[1].replace('|', ' ')}" \\
    -- "${{word#*=}}")) ;;
""" for option, value, _ in options if (match := VALUES.match(value)))
    function = "_" + name.replace("-", "_")
    return f"""# bash completion of {name}; made from its --help.
{function}() {{
  local word=${{COMP_LINE:0:$COMP_POINT}}
  word=${{word##*[[:space:]]}}
  COMPREPLY=()
  case $word in
{lists}  *=*) COMPREPLY=($(compgen -f -- "${{word#*=}}")) ;;
  -*)
    COMPREPLY=($(compgen -W "{words}" -- "$word"))
    [[ ${{#COMPREPLY[@]}} -eq 1 && $COMPREPLY == *= ]] && compopt -o nospace
    ;;
  *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
  return 0
}}
complete -o filenames -F {function} {name}
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("tools", nargs="+")
    given = parser.parse_args()
    for tool in given.tools:
        name = os.path.basename(tool)
        overview, usage, options = read_help(tool)
        if not usage or not options:
            sys.exit(f"{name}: its --help has no usage or no options")
        version = subprocess.run([tool, "--version"], stdout=subprocess.PIPE,
                                 check=True, text=True).stdout.split()[-1]
        write(f"{given.out}/man/man1/{name}.1",
              manual(name, version, overview, usage, options))
        write(f"{given.out}/bash-completion/completions/{name}",
              completion(name, options))


if __name__ == "__main__":
    main()
