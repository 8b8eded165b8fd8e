"""All measurements, one after the other: ``python -m benchmarks``. Best on a quiet machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = ["slots.py", "lock.py", "meter.py", "tasks.py", "beat.py", "partition_scale.py"]

for script in SCRIPTS:
    print(f"\n== {script} ==", flush=True)
    subprocess.run([sys.executable, HERE / script], check=True)
