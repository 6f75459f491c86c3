# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package installs, with all of its parts."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import galvatron

from .support import SOURCE, FolderTest


class InstallTest(FolderTest):
    @unittest.skipUnless(all(importlib.util.find_spec(name)
                             for name in ("pip", "setuptools", "wheel")),
                         "needs pip, setuptools and wheel")
    def test_pip_installs_all_modules(self):
        # Building writes beside the sources.
        sources = self.folder / "python"
        shutil.copytree(SOURCE / "python", sources,
                        ignore=shutil.ignore_patterns("__pycache__", "build"))
        target = self.folder / "target"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
             "--no-build-isolation", "--no-index", "--target", str(target),
             str(sources)], check=True, capture_output=True)

        def files(folder):
            return {path.relative_to(folder) for path in folder.rglob("*")
                    if path.suffix == ".py" or path.name == "py.typed"}

        self.assertEqual(files(target / "galvatron"),
                         files(pathlib.Path(galvatron.__file__).parent))
        code = "import galvatron, galvatron.graph; print(galvatron.__version__)"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.folder,
                              env=dict(os.environ, PYTHONPATH=str(target)),
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), galvatron.__version__)


if __name__ == "__main__":
    unittest.main()
