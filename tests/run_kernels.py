"""Run the numerical tests with the instructions of other processors: `make test-kernels`.

OpenBLAS and XLA choose their kernels by processor, and every kernel rounds differently. Settings that this
processor has no instructions for are skipped, and the reason is printed. Arguments are passed on to pytest.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# OPENBLAS_CORETYPE, xla_cpu_max_isa, and the flags of /proc/cpuinfo that they need.
KERNELS = (
    ("Nehalem", "SSE4_2", "sse4_2"),
    ("Haswell", "AVX2", "avx2 fma"),
    ("Zen", "AVX2", "avx2 fma"),
    ("SkylakeX", "AVX512", "avx512f avx512dq avx512bw avx512vl"),
)
# Files that compare what was computed with numbers, not with words.
FILES = """
    active_neurons adam branch_features budget channels christoffel coordinates diagnose encoders errata
    estimates evaluation exchange fields golden gradient input_spaces interpolation intervals large lbfgs
    limits losses low_rank minimise monolithic networks operator orthonormalise output_maps problems
    problems_fem projected random_conductivity ridge scattered selection sensors separable separate_trunks
    two_step
"""


def main(arguments: Sequence[str]) -> int:
    """The number of settings under which a test failed."""
    here = Path(__file__).parent
    files = [str(here / f"test_{name}.py") for name in FILES.split()]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *files, *arguments]
    flags, failed = processor_flags(), 0
    for core, isa, needed in KERNELS:
        missing = set(needed.split()) - flags
        if missing:
            print(f"{core} with {isa}: skipped, this processor lacks {', '.join(sorted(missing))}", flush=True)
            continue
        print(f"{core} with {isa}", flush=True)
        xla = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={isa}".strip()
        environment = os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": xla}
        failed += subprocess.run(command, env=environment).returncode != 0
    return failed


def processor_flags() -> set[str]:
    """The instructions of this processor; none where the system does not list them as Linux on x86 does."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return set(next((line for line in lines if line.startswith("flags")), "").split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
