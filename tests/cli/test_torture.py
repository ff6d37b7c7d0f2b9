"""A short run of the torture of builds; `make torture` is the long one."""

from __future__ import annotations

import re
import subprocess
import sys

from command_line import ENVIRONMENT, ROOT


def test_killed_raced_and_starved_builds_leave_nothing_torn_and_no_litter():
    """Field report 34."""
    command = [sys.executable, str(ROOT / "tests" / "torture.py"), "--seed", "1"]
    sizes = ["--kills", "10", "--processes", "4", "--rounds", "1", "--disks", "2"]
    done = subprocess.run([*command, *sizes], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n0 faults" in done.stdout
    loads = [int(n) for n in re.findall(r"(\d+) loads meanwhile", done.stdout)]
    assert len(loads) == 2
    assert min(loads) > 10
    assert int(re.findall(r"in the middle of a write (\d+)", done.stdout)[0]) > 0
