"""How tests start the command line as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}"}
PROGRAM = [sys.executable, "-c", "from pcdc.__main__ import main; main()"]
