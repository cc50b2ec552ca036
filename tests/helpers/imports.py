"""Which modules an import or a command loads."""

import subprocess
import sys

HEAVY = {"torch", "datasets", "pydantic", "tokenizers", "numpy", "pyarrow", "safetensors", "sacrebleu", "fastapi"}


def loaded(code: str) -> set[str]:
    """Run code in a new process, and return the top-level modules that are loaded afterwards."""
    code = f"import sys\n{code}\nprint('\\n' + ' '.join(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())
