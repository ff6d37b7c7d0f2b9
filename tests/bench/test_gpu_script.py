"""`make bench-gpu` without a GPU: its rehearsal runs whole, and what is missing is said."""

import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"


def run(*arguments, path=os.environ["PATH"]):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path, "PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"},
        check=False,
    )


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gpu_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_without_a_gpu_it_says_what_is_missing_and_fails(tmp_path, arguments):
    done = run(*arguments, path=str(tmp_path))
    assert done.returncode == 2
    assert "no NVIDIA GPU" in done.stderr
    assert "--rehearse" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("status", "found"), [(0, "A GPU, 580.1, 1000 MiB, 9.0"), (9, None)])
def test_a_gpu_is_what_the_driver_says(tmp_path, script, monkeypatch, status, found):
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\necho 'A GPU, 580.1, 1000 MiB, 9.0'\nexit {status}\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script.found_gpu() == found


def test_its_environment_has_the_cuda_build_and_never_the_cpu_one(script):
    wanted = script.requirements()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [line for line in wanted if line.startswith("mlx[")] == [
        line.replace("cpu", "cuda13") for line in project["dependencies"] if "mlx[cpu]" in line
    ]
    assert not any("mlx[cpu]" in line or "mkl" in line for line in wanted)
    others = {line for line in project["dependencies"] if not line.startswith(("mlx>", "mlx["))}
    assert others <= set(wanted)
    assert any(line.startswith("llguidance") for line in wanted)


def test_requirements_need_nothing_installed():
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(SCRIPT), "--requirements"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "mlx[cuda13]" in done.stdout


def test_the_full_run_refuses_an_mlx_without_cuda(script):
    measured = script.measured("bfloat16", rehearse=False)
    assert "error" in measured
    assert "not measured" in script.text("bfloat16", measured)


def test_a_rehearsal_runs_the_whole_script(tmp_path):
    done = run("--rehearse", "--precision", "float32", "--precision", "bfloat16", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "no GPU figures" in done.stdout
    report = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert report["rehearsal"] is True
    assert report["gpu"] == ""
    assert list(report["precisions"]) == ["float32", "bfloat16"]
    for name, found in report["precisions"].items():
        assert f"## {name}" in done.stdout
        (scenario,) = found["scenarios"]
        assert [method for method in scenario["methods"] if "error" in method] == []
        ours, longer, branches, tokens, many = scenario["methods"]
        assert ours["passes"] <= 2
        assert longer["positions"] > ours["positions"]
        assert ours["passes"] < branches["passes"] < tokens["passes"]
        assert many["positions"] > ours["positions"]
        assert scenario["floor_data"]["floor_ms"] > 0
        assert found["attention"]["difference"] < 0.05
        assert found["machine"]
