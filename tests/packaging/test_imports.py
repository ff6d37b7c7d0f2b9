"""The import rules: what each module may import, read from its source and seen in a fresh interpreter."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"pcdc": ROOT / "pcdc", "pcdc_runtime": ROOT / "runtime" / "pcdc_runtime"}
WITHOUT_MLX = (
    "artifact",
    "calibration",
    "codec",
    "errors",
    "indexed",
    "models",
    "result",
    "tokenizer",
    "weights",
)
ONLY_IN = {
    "transformers": "template",
    "jsonschema": "shapes",
    "sqlalchemy": "sql",
    "watchdog": "events",
    "typer": "cli",
    "llguidance": "writing",
    "scipy": "evaluation",
    "sklearn": "evaluation",
    "threadpoolctl": "evaluation",
    "matplotlib": "evaluation bench",
    "pcd_rlcd": "bench",
}
SLOW = {"mlx", "mlx_lm", "transformers", "tokenizers", "jsonschema", "watchdog", "numpy", "msgpack"}
EVAL = {"llguidance", "scipy", "sklearn", "threadpoolctl", "matplotlib", "marisa_trie"}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    at_load: bool


def modules(package: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Dotted name and file of every module of a package."""
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        yield ".".join((package, *(part for part in parts if part != "__init__"))), file


def imports(name: str, file: Path) -> Iterator[Import]:
    """Every import in a file that can happen at run time, spelled absolutely."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]

    def walk(node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (Import(f"{stem}.{alias.name}", node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.Call) and (target := _dynamic(node)):
            yield Import(target, node.lineno, at_load)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        type_checking = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        children = node.orelse if type_checking else ast.iter_child_nodes(node)
        for child in children:
            yield from walk(child, at_load and not is_function)

    yield from walk(ast.parse(file.read_text(encoding="utf-8")), True)


def _dynamic(call: ast.Call) -> str | None:
    function = ast.unparse(call.func).rpartition(".")[2]
    if function in ("import_module", "__import__") and call.args and isinstance(call.args[0], ast.Constant):
        return str(call.args[0].value)
    return None


def offences(package: str, folder: Path) -> list[str]:
    """Every import of a package's files that the rules forbid, as `module:line imports name`."""
    return [
        f"{name}:{found.line} imports {found.module}"
        for name, file in modules(package, folder)
        for found in imports(name, file)
        if not allowed(package, name.partition(".")[2].partition(".")[0], found)
    ]


def allowed(package: str, module: str, found: Import) -> bool:
    """Whether a module of a package may do this import."""
    top = found.module.partition(".")[0]
    if package == "pcdc":
        if top in ("mlx", "mlx_lm", "marisa_trie"):
            return module == "bench" and not found.at_load
        return top not in ONLY_IN or module in ONLY_IN[top].split()
    if top in ("pcdc", "jsonschema", "watchdog", "typer", *EVAL):
        return False
    if top == "transformers":
        return module == "models" and not found.at_load
    if top == "mlx_lm":
        return module == "model" and not found.at_load
    return not (top == "mlx" and module in WITHOUT_MLX)


@pytest.mark.parametrize("package", SOURCES)
def test_no_module_imports_what_it_must_not(package):
    assert [name for name, _ in modules(package, SOURCES[package])]
    assert offences(package, SOURCES[package]) == []


@pytest.mark.parametrize("module", [*WITHOUT_MLX, "model"])
def test_the_modules_that_the_rules_name_exist(module):
    file = SOURCES["pcdc_runtime"] / f"{module}.py"
    assert file.is_file() or (file.with_suffix("") / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("package", "module", "source"),
    [
        ("pcdc_runtime", "engine", "import pcdc"),
        ("pcdc_runtime", "engine", "def f():\n    from pcdc.schema import Schema"),
        ("pcdc_runtime", "plan", "import importlib\nimportlib.import_module('typer')"),
        ("pcdc_runtime", "plan", "try:\n    import jsonschema\nexcept ImportError:\n    pass"),
        ("pcdc_runtime", "result", "import watchdog.events"),
        ("pcdc_runtime", "artifact", "from mlx import core"),
        ("pcdc_runtime", "models", "def f():\n    import mlx.core as mx"),
        ("pcdc_runtime", "model", "import mlx_lm"),
        ("pcdc_runtime", "model", "class A:\n    from mlx_lm.utils import load_model"),
        ("pcdc_runtime", "engine", "def f():\n    from mlx_lm import load"),
        ("pcdc", "emit", "import transformers"),
        ("pcdc", "build", "from jsonschema import validate"),
        ("pcdc", "cli", "import watchdog"),
        ("pcdc", "catalog", "def f():\n    from sqlalchemy import create_engine"),
        ("pcdc", "build", "from typer import echo"),
        ("pcdc", "emit", "def f():\n    import mlx.core"),
        ("pcdc", "prompt", "from mlx_lm.utils import load"),
        ("pcdc", "build", "def f():\n    import matplotlib.pyplot"),
        ("pcdc", "evaluation", "import llguidance"),
        ("pcdc", "bench", "import scipy"),
        ("pcdc", "bench", "from mlx_lm.models.cache import KVCache"),
        ("pcdc", "writing", "def f():\n    from pcd_rlcd import schema"),
        ("pcdc_runtime", "score", "from scipy.special import logsumexp"),
        ("pcdc_runtime", "indexed/codec", "def f():\n    import mlx.core as mx"),
        ("pcdc_runtime", "selecting/ppv", "def f():\n    import marisa_trie"),
        ("pcdc", "indexing/forms", "def f():\n    import mlx.core as mx"),
        ("pcdc", "indexing/prompting", "from transformers import AutoTokenizer"),
        ("pcdc", "indexing/sorting", "def f():\n    import marisa_trie"),
        ("pcdc", "bench/tries", "import marisa_trie"),
    ],
)
def test_a_planted_import_is_reported(tmp_path, package, module, source):
    (tmp_path / module).parent.mkdir(exist_ok=True)
    (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
    assert len(offences(package, tmp_path)) == 1


@pytest.mark.parametrize(
    ("package", "module", "source"),
    [
        ("pcdc_runtime", "model", "import mlx.core\ndef f():\n    from mlx_lm.utils import load_model"),
        (
            "pcdc_runtime",
            "models",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mlx.core",
        ),
        ("pcdc_runtime", "plan", "from . import artifact\nfrom .errors import PcdcError"),
        ("pcdc", "emit", "import pcdc_runtime.artifact\nfrom pcdc_runtime.errors import PcdcError"),
        ("pcdc", "template", "import transformers"),
        ("pcdc", "events", "from watchdog.events import FileSystemEvent"),
        ("pcdc", "cli/build", "import typer"),
        ("pcdc", "bench/plots", "import matplotlib"),
        ("pcdc", "bench/rows", "def f():\n    from mlx_lm.models.cache import KVCache"),
        ("pcdc", "bench/tries", "def f():\n    import marisa_trie"),
        ("pcdc_runtime", "selecting/ppv_mlx", "import mlx.core as mx"),
    ],
)
def test_an_import_the_rules_allow_is_not_reported(tmp_path, package, module, source):
    (tmp_path / module).parent.mkdir(exist_ok=True)
    (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
    assert offences(package, tmp_path) == []


def loaded_by(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter holds after running code."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_the_modules_without_mlx_load_none_even_indirectly():
    names = [name for name, _ in modules("pcdc_runtime", SOURCES["pcdc_runtime"]) if "." in name]
    code = "\n".join(f"import {name}" for name in names if name.split(".")[1] in WITHOUT_MLX)
    assert loaded_by(code).isdisjoint(
        {"pcdc", "jsonschema", "watchdog", "typer", "mlx", "mlx_lm", "transformers"}
    )


def test_loading_the_whole_runtime_loads_no_compiler_and_no_mlx_lm():
    code = "\n".join(f"import {name}" for name, _ in modules("pcdc_runtime", SOURCES["pcdc_runtime"]))
    assert loaded_by(code).isdisjoint({"pcdc", "jsonschema", "watchdog", "typer", "mlx_lm", "transformers"})


def test_loading_the_whole_compiler_loads_no_mlx():
    code = "\n".join(
        f"import {name}" for name, _ in modules("pcdc", SOURCES["pcdc"]) if not name.endswith("__main__")
    )
    assert loaded_by(code).isdisjoint({"mlx", "mlx_lm"})


@pytest.mark.parametrize("package", SOURCES)
def test_importing_a_package_alone_loads_nothing_slow(package):
    assert loaded_by(f"import {package}").isdisjoint({*SLOW, "typer"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["build", "--help"],
        ["run", "--help"],
        ["index", "--help"],
        ["select", "--help"],
        ["--version"],
    ],
)
def test_help_loads_nothing_that_only_work_needs(arguments):
    code = f"""
        import sys
        sys.argv = {["pcdc", *arguments]}
        from pcdc.__main__ import main
        try:
            main()
        except SystemExit as exit:
            assert not exit.code, exit.code
    """
    assert loaded_by(textwrap.dedent(code)).isdisjoint(SLOW)


def test_every_command_starts_without_what_only_an_evaluation_needs():
    assert loaded_by("import pcdc.cli").isdisjoint(EVAL)


@pytest.mark.parametrize("missing", ["scipy", "sklearn", "matplotlib"])
def test_an_evaluation_without_its_packages_names_the_extra(missing):
    code = f"""
        import sys
        sys.modules["{missing}"] = None
        from typer.testing import CliRunner
        from pcdc.cli import app
        done = CliRunner().invoke(app, ["eval", "no.pcdc", "no.jsonl"])
        assert done.exit_code == 2, done.output
        assert "PCDC404" in done.stderr and "pip install 'pcdc[eval]'" in done.stderr, done.stderr
    """
    loaded_by(textwrap.dedent(code))


def test_the_plots_of_a_benchmark_without_their_package_name_the_extra():
    code = """
        import sys
        sys.modules["matplotlib"] = None
        from typer.testing import CliRunner
        from pcdc.cli import app
        done = CliRunner().invoke(app, ["bench", "--out", "plots"])
        assert done.exit_code == 2, done.output
        assert "PCDC404" in done.stderr and "pip install 'pcdc[bench]'" in done.stderr, done.stderr
    """
    loaded_by(textwrap.dedent(code))


@pytest.mark.parametrize(
    ("command", "name", "left"),
    [
        ("build", "fraud_routing", ["fraud_routing.smollm2-135m.pcdc"]),
        ("build", "software_license", ["software_license.smollm2-135m.pcdx"]),
        ("index", "software_license", ["software_license.smollm2-135m.pcdx"]),
        ("lint", "fraud_routing", []),
        ("lint", "software_license", []),
    ],
)
def test_a_definition_is_built_and_linted_where_mlx_cannot_be_imported(tmp_path, command, name, left):
    """Field report 55."""
    arguments = ["pcdc", command, str(ROOT / "schemas" / f"{name}.json"), "--out", str(tmp_path)]
    code = f"""
        import sys
        sys.modules["mlx"] = sys.modules["mlx_lm"] = None
        sys.argv = {arguments}
        from pcdc.cli import main
        try:
            main()
        except SystemExit as exit:
            assert not exit.code, exit.code
    """
    loaded_by(textwrap.dedent(code))
    assert [path.name for path in tmp_path.glob("*.pcd[cx]")] == left


def test_a_planted_indirect_import_is_seen():
    assert "jsonschema" in loaded_by("import jsonschema.validators")
