"""Both distributions are built, opened and installed into fresh environments, as a user would do it."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import pcdc
from pcdc.distribution import double_installation

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime"
SHIPPED = "pcdc/bench/shipped/"


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pip(*arguments: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments)


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment that sees this one's dependencies, but neither distribution."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder)}))

    def install(self, *arguments: str | Path) -> None:
        pip("--python", self.python, "install", "--no-deps", "--no-build-isolation", *arguments)

    def origins(self, *packages: str) -> list[Path]:
        """The folders that these packages are imported from."""
        names = ", ".join(packages)
        code = f"import json, {names}; print(json.dumps([package.__path__[0] for package in [{names}]]))"
        return [Path(path) for path in json.loads(run(self.python, "-I", "-c", code))]


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory):
    """This environment's packages without the two distributions under test."""
    folder = tmp_path_factory.mktemp("dependencies")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().lstrip("_").startswith("pcdc") and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture
def environment(tmp_path, dependencies):
    fresh = Environment(tmp_path / "environment")
    venv.create(fresh.folder, symlinks=True)
    (fresh.site / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    return fresh


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of each distribution, by name."""
    folder = tmp_path_factory.mktemp("wheels")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT, RUNTIME)
    return {path.name.partition("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def sources(package: Path) -> set[str]:
    kept = (p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(package.parent).as_posix() for p in kept}


def project(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("name", ["pcdc", "pcdc-runtime"])
def test_a_wheel_holds_its_packages_whole_and_nothing_else(wheels, name):
    packages = (
        [RUNTIME / "pcdc_runtime"] if name == "pcdc-runtime" else [ROOT / "pcdc", RUNTIME / "pcdc_runtime"]
    )
    content = {file for file in files(wheels[name]) if ".dist-info/" not in file}
    scenarios = {file for file in content if file.startswith(SHIPPED)}
    assert content - scenarios == set().union(*(sources(package) for package in packages))


def test_only_the_compilers_wheel_carries_the_scenarios_of_a_benchmark(wheels):
    shipped = {name: {f for f in files(wheel) if f.startswith(SHIPPED)} for name, wheel in wheels.items()}
    schemas = sources(ROOT / "schemas")
    assert shipped == {
        "pcdc": {SHIPPED + name.removeprefix("schemas/") for name in schemas},
        "pcdc-runtime": set(),
    }


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "pcdc",
            {
                "pcdc/py.typed",
                "pcdc/dialect.json",
                "pcdc/lint/rules/PCDC515.md",
                "pcdc_runtime/py.typed",
                "pcdc_runtime/artifact.py",
            },
        ),
        ("pcdc-runtime", {"pcdc_runtime/py.typed", "pcdc_runtime/artifact.py"}),
    ],
)
def test_a_wheel_carries_its_types_and_data(wheels, name, wanted):
    assert wanted <= files(wheels[name])


@pytest.mark.parametrize("name", ["pcdc", "pcdc-runtime"])
def test_a_wheel_states_its_licence_and_description(wheels, name):
    stated = metadata(wheels[name])
    assert stated["Name"] == name
    assert stated["License-Expression"] == "Apache-2.0"
    assert stated["Requires-Python"] == ">=3.11"
    assert stated.get_payload().strip()
    licence = next(file for file in files(wheels[name]) if file.endswith("/licenses/LICENSE"))
    with zipfile.ZipFile(wheels[name]) as archive:
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_the_lean_wheel_asks_for_no_compiler_dependency(wheels):
    asked = " ".join(metadata(wheels["pcdc-runtime"]).get_all("Requires-Dist"))
    assert not [name for name in ("jsonschema", "typer", "transformers", "watchdog") if name in asked]


def test_the_two_projects_agree_on_version_and_shared_dependencies():
    full, lean = project(ROOT), project(RUNTIME)
    assert full["version"] == lean["version"] == pcdc.__version__
    assert set(lean["dependencies"]) <= set(full["dependencies"])


def test_only_linux_and_macos_ask_for_mlx(wheels):
    asked = [line for line in metadata(wheels["pcdc"]).get_all("Requires-Dist") if line.startswith("mlx")]
    markers = {line.partition(";")[0].split("<")[0].strip(): line.partition(";")[2].strip() for line in asked}
    assert markers["mlx[cpu]"].replace("'", '"') == 'sys_platform == "linux"'
    assert markers["mlx"].replace("'", '"') == 'sys_platform == "darwin"'


def test_the_source_archive_leaves_out_what_was_built(tmp_path):
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {"pyproject.toml", "LICENSE", "pcdc/py.typed", "runtime/pcdc_runtime/py.typed"} <= names
    assert not [name for name in names if name.startswith(("build/", ".venv/")) or name.endswith(".pyc")]


@pytest.mark.parametrize("project", [ROOT, RUNTIME], ids=["pcdc", "pcdc-runtime"])
def test_an_installed_copy_is_the_one_imported(environment, project):
    environment.install(project)
    packages = ["pcdc_runtime"] if project == RUNTIME else ["pcdc", "pcdc_runtime"]
    assert environment.origins(*packages) == [environment.site / package for package in packages]
    if project == ROOT:
        assert run(environment.folder / "bin" / "pcdc", "--help")


def test_an_editable_install_imports_both_packages_from_the_sources(environment):
    environment.install("-e", ROOT)
    assert environment.origins("pcdc", "pcdc_runtime") == [ROOT / "pcdc", RUNTIME / "pcdc_runtime"]


def test_an_environment_with_both_distributions_is_reported(environment, wheels):
    site = [str(environment.site)]
    environment.install(wheels["pcdc"])
    assert double_installation(site) is None
    environment.install(wheels["pcdc-runtime"])
    message = double_installation(site)
    assert message is not None
    assert "pip uninstall pcdc-runtime" in message


def test_this_environment_holds_one_distribution():
    assert double_installation() is None
