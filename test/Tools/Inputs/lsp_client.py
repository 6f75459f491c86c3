# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Speaks to the language server as an editor does, about a file with errors made
on the way.

    lsp_client.py SERVER FILE.mlir
"""

import json
import subprocess
import sys


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen([command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.requests = 0

    def send(self, method, params, **more):
        text = json.dumps(
            {"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)
        self.process.stdin.flush()

    def receive(self):
        length = 0
        while line := self.process.stdout.readline().strip():
            key, value = line.split(b":")
            if key == b"Content-Length":
                length = int(value)
        return json.loads(self.process.stdout.read(length))

    def ask(self, method, params):
        self.requests += 1
        self.send(method, params, id=self.requests)
        answer = self.receive()
        assert answer["id"] == self.requests, answer
        return answer["result"]

    def diagnostics(self):
        answer = self.receive()
        assert answer["method"] == "textDocument/publishDiagnostics", answer
        return answer["params"]["diagnostics"]


def expect(condition, found):
    if not condition:
        sys.exit(f"not expected: {json.dumps(found)[:2000]}")


def main():
    server = Server(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines()
    document = {"uri": "file:///model.mlir"}

    def at(word, line_with, offset=1):
        """Behind the first letter of `word`, in the first line with a text."""
        number = next(i for i, line in enumerate(lines) if line_with in line)
        return {"textDocument": document,
                "position": {"line": number, "character":
                             lines[number].index(word) + offset}}

    def change(new, version):
        server.send("textDocument/didChange",
                    {"textDocument": {**document, "version": version},
                     "contentChanges": [{"text": new}]})
        return server.diagnostics()

    capabilities = server.ask("initialize", {
        "processId": None, "rootUri": None, "capabilities": {}})["capabilities"]
    expect(capabilities["hoverProvider"] and capabilities["definitionProvider"]
           and capabilities["completionProvider"], capabilities)
    server.send("initialized", {})
    server.send("textDocument/didOpen", {"textDocument": {
        **document, "languageId": "mlir", "version": 1, "text": text}})
    found = server.diagnostics()
    expect(not found, found)

    hover = server.ask("textDocument/hover", at("galvatron.layer", '"mlp.0"'))
    expect("callee = @toy.mlp" in hover["contents"]["value"], hover)
    # From its use to the function, and to the parameter.
    for name, use, place in (
            ("@toy.mlp", '"mlp.0" @toy.mlp', "func.func private @toy.mlp("),
            ('@"embed.table"', '[@"embed.table"]', 'parameter @"embed.table"')):
        found = server.ask("textDocument/definition", at(name, use))
        expect(len(found) == 1 and
               place in lines[found[0]["range"]["start"]["line"]], found)

    found = change(text.replace("galvatron.layer", "galvatron.lair", 1), 2)
    expect("'galvatron.lair' is unknown" in found[0]["message"], found)
    # A verifier's error, at its operation.
    found = change(text.replace("@toy.mlp", "@toy.nothing", 1), 3)
    expect(len(found) == 1 and "toy.nothing" in found[0]["message"] and
           "@toy.mlp" in lines[found[0]["range"]["start"]["line"]], found)
    found = change(text, 4)
    expect(not found, found)

    number = at("nn.linear", "nn.linear")["position"]["line"]
    change("\n".join(lines[:number] + ["    nn."] + lines[number:]), 5)
    found = server.ask("textDocument/completion", {
        "textDocument": document, "position": {"line": number, "character": 7}})
    expect("attention" in {item["label"] for item in found["items"]}, found)

    server.ask("shutdown", None)
    server.send("exit", None)
    expect(server.process.wait(timeout=30) == 0, server.process.returncode)


main()
