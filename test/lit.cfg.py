# Configuration of lit: what a test may use. Values of the build come from
# lit.site.cfg.py, made from lit.site.cfg.py.in.
import os
import subprocess

import lit.formats

config.name = "Galvatron"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "lib", "oracle", "bad-inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.galvatron_build_folder, "test")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.galvatron_build_folder, "bin"), config.llvm_tools_folder,
     config.environment.get("PATH", "")])
for variable in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "GALVATRON_ORACLES",
                 "PYTHONPATH", "GALVATRON_FAULT", "GALVATRON_FAULTS_REACHED"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]
config.substitutions += [
    ("%bin", os.path.join(config.galvatron_build_folder, "bin")),
    ("%examples", os.path.join(config.galvatron_source_folder, "examples")),
    ("%tokenizers", os.path.join(config.galvatron_source_folder, "runtime", "tests", "tokenizers")),
    ("%docs", os.path.join(config.galvatron_source_folder, "docs")),
    ("%python", config.python),
]

# Left out of builds without the libraries that it needs.
if os.path.exists(os.path.join(config.galvatron_build_folder, "bin", "galvatron-data")):
    config.available_features.add("tokenizers")
# The CUDA backend on libraries that watch it, which need no GPU.
cuda_tests = os.path.join(config.galvatron_build_folder, "runtime", "backends",
                          "cuda", "tests")
if os.path.exists(os.path.join(cuda_tests, "watched", "libgrt_cuda_watched.so")):
    config.available_features.add("cuda-watched")
    config.substitutions += [
        ("%watched", os.path.join(cuda_tests, "watched", "libgrt_cuda_watched.so")),
        ("%fakes", os.path.join(cuda_tests, "fakes"))]
# Data that a package ships, found without importing it.
if subprocess.call([config.python, "-c", "import importlib.util as util, sys; "
                    "sys.exit(util.find_spec('sklearn') is None)"]) == 0:
    config.available_features.add("scikit-learn")
