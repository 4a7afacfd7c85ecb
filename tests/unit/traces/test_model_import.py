"""`mltcp import --model`: what it writes and prints, what it refuses, and mutated files and command lines."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path

import pytest

import testbed
from testbed import spec
from testbed.cli import main
from testbed.core.errors import RequestError
from testbed.planning import plan
from testbed.traces import model_files, trace
from tests.support import hostile, mutations
from tests.support.profiles import cli

LLAMA = model_files.LIBRARY / "llama-7b.toml"
OTHERS = ("gpt3", "mixtral-8x7b", "t5", "vit", "dlrm")
LAYOUT = {
    "--tp": ("1", "2", "4"), "--pp": ("1", "2", "3"), "--dp": ("1", "2", "8"), "--ep": ("2", "4"), "--cp": ("2",), "--micro-batches": ("1", "3"),
    "--micro-batch-size": ("1", "5"), "--sequence": ("64", "512"), "--schedule": ("1f1b", "gpipe"), "--sequence-parallel": ("on", "off"), "--zero": ("0", "1", "2", "3"), "--virtual-stages": ("1", "2"),
    "--recompute": ("on",), "--gradients": ("bf16", "fp32"), "--detail": ("layer", "stage"), "--device": ("h100", "A100"), "--mfu": ("40%",), "--peak": ("1pflops",),
}  # fmt: skip


@pytest.mark.slow
def test_a_large_job_is_written_checked_and_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    words = "--model llama-70b --tp 8 --pp 4 --dp 16 --device h100 --micro-batches 16 -o"
    assert cli(*words.split(), path) == 0
    made = trace.load(str(path))
    assert made.ranks == 512 and made.name == "x" and made.device is not None and made.device.name == "h100"
    printed = capsys.readouterr().out
    assert "512" in printed and "152.203 GB" in printed and all(text in printed for text in made.assumptions[:2])
    with pytest.raises(RequestError):
        plan.resolve(spec.read(None, {"jobs": 1, "trace": str(path)}))


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('title = "mine"\nlayers = 4\nhidden = 64\nffn = 256\nheads = 4\nvocabulary = 1000\nsequence = 32\n')
    assert cli("--model", mine, "--dp", "4", "-o", tmp_path / "mine.json") == 0
    found = trace.load(str(tmp_path / "mine.json"))
    layer = 4 * 64 * 64 + 2 * 64 * 256 + 2 * 64
    assert found.bytes_per_iteration == 2 * (4 * layer + 2 * 1000 * 64 + 64)


def test_a_job_of_eight_ranks_runs_on_flow(tmp_path: Path) -> None:
    """Llama 2 7B: a ring of two sends 16 layers, and the embedding (or head and norm), of 2 bytes a number, split over two ranks."""
    path = tmp_path / "job.json"
    words = "--model llama-7b --tp 2 --pp 2 --dp 2 --micro-batches 2 --device h100 -o"
    assert cli(*words.split(), path) == 0
    results = testbed.run(
        on="flow", topo="star", trace=str(path), jobs=1, rate="100gbit", mtu=9000, iterations=3, system="reno", isolated_runs="none", out=str(tmp_path),
    )  # fmt: skip
    layer = (4 * 4096 * 4096 + 3 * 4096 * 11008) // 2 + 2 * 4096
    first, last = ((16 * layer + extra) * 2 + 2 * 4096 * 4096 * 2 for extra in (16000 * 4096, 16000 * 4096 + 4096))
    sent = results.table("iterations").groupby("worker")["bytes"].unique()
    assert [list(one) for one in sent] == [[first]] * 4 + [[last]] * 4


@pytest.mark.parametrize(
    "words",
    [
        "", "--model", "--model lama-7b", "--model gpt2 --tp 5", "--model gpt2 --check", "--model gpt2 --native-rate 10gbit", "--model gpt2 --bytes 1MB",
        "--model gpt2 --group dp", "--model ./none.toml", "--model .", "--tp 2", "profile.json --tp 2",
    ],
)  # fmt: skip
def test_refuses(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(*words.split(), "-o", tmp_path / "x.json") == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "Traceback" not in said
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("layers = 32", "layers = 0"), ("layers = 32", ""), ("heads = 32", "heads = 33"), ("heads = 32", "heads = 32\nkv_heads = 5"), ("hidden = 4096", "hidden = -1"),
        ("hidden = 4096", "hidden = 4096.5"), ("vocabulary = 32000", ""), ("vocabulary = 32000", "image = 224"), ("heads = 32", "heads = 32\nexperts = 8"),
        ("heads = 32", "heads = 32\nexperts = 2\nexperts_per_token = 3"), ("sequence = 4096", ""), ("gated = true", "gated = 1"), ("gated = true", "gate = true"),
        ('kind = "transformer"', 'kind = "diffusion"'), ('kind = "transformer"', 'kind = "recommender"'), ("layers = 32", "layers = 1000000000000000000000"),
        ("ffn = 11008", "ffn = [1]"), ("title", "titel"), ("layers = 32", "layers = "), ("sequence = 4096", "sequence = 4096\ntied = true\nimage = 2\npatch = 2\nclasses = 2"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_model(before: str, after: str, tmp_path: Path) -> None:
    text = LLAMA.read_text()
    assert before in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(RequestError) as error:
        model_files.load(str(path))
    assert error.value.exit_code == 2 and "mine.toml" in str(error.value)


def test_every_model_of_the_library_says_where_it_is_from() -> None:
    for name in model_files.names():
        raw = tomllib.loads((model_files.LIBRARY / f"{name}.toml").read_text())
        assert raw["title"] and raw["source"]


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.long)])
def test_mutated_models(count: int, tmp_path: Path) -> None:
    """Each is imported, and what is written can be read; or refused in one paragraph."""
    out, codes = tmp_path / "x.json", set()
    for seed in range(count):
        draw = random.Random(f"model {seed}")
        text = (model_files.LIBRARY / f"{draw.choice(('llama-7b', *OTHERS))}.toml").read_text()
        (tmp_path / "mutated.toml").write_bytes(mutations.mutated(draw, text) if draw.random() < 0.9 else text.encode())
        words = ["import", "--model", str(tmp_path / "mutated.toml"), "-o", str(out), "--force"]
        for flag, values in draw.sample(sorted(LAYOUT.items()), draw.randint(0, 4)):
            words += [flag, draw.choice(values if draw.random() < 0.95 else mutations.VALUES)]
        out.unlink(missing_ok=True)
        answer = hostile.answer(main, words)
        assert answer["code"] in (0, 2), (seed, words, answer)
        assert out.exists() == (answer["code"] == 0)
        if answer["code"] == 0:
            assert trace.load(str(out)).groups
            json.loads(out.read_text())
        codes.add(answer["code"])
    assert codes == {0, 2}
