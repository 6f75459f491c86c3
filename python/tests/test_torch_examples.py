# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples that need PyTorch do what they say."""

import json
import os
import re
import subprocess
import sys
import unittest

try:
    from torch.export import export as _export  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest(f"needs PyTorch with torch.export: {error}") from error
try:
    import transformers
except ImportError:
    transformers = None

from .support import EXAMPLES, SOURCE, FolderTest


class ExampleTest(FolderTest):
    def run_python(self, *arguments, text="README.md"):
        environment = dict(os.environ, PYTHONPATH=str(SOURCE / "python"),
                           GALVATRON_TEXT=str(SOURCE / "docs" / text))
        done = subprocess.run([sys.executable, *map(str, arguments)], cwd=self.folder,
                              env=environment, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_own_module(self):
        output = self.run_python(EXAMPLES / "own-module" / "train.py",
                                 SOURCE / "docs" / "README.md", 50)
        self.assertIn("layer blocks.2: LanguageModel.block", output)
        first, last = (float(loss) for loss in
                       re.findall(r"^step \d+: loss ([\d.]+)", output, re.M))
        self.assertGreater(first, 5)
        self.assertLess(last, 3.5)
        here, there = re.search(r"loss here ([\d.]+), in PyTorch ([\d.]+)",
                                output).groups()
        self.assertAlmostEqual(float(here), float(there), delta=2e-4)

    @unittest.skipUnless(transformers, "needs transformers")
    def test_notebook(self):
        path = EXAMPLES / "notebook" / "transformers.ipynb"
        book = json.loads(path.read_text(encoding="utf-8"))
        cells = ["".join(cell["source"]) for cell in book["cells"]
                 if cell["cell_type"] == "code"]
        self.assertGreater(len(cells), 5)
        # What a cell ends with is shown; here the plan's page and the losses.
        script = self.write("cells.py", "\n\n".join(cells) + """

assert "<html" in plan.report().lower() and "iframe" in plan._repr_html_()
print("losses", losses[0], losses[-1])
""")
        first, last = self.run_python(script).split()[-2:]
        self.assertGreater(float(first), 5)
        self.assertLess(float(last), 3.5)


if __name__ == "__main__":
    unittest.main()
