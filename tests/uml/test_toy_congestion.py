"""Adding a congestion control is its C in `kernel` and its entry in `congestion`: nothing else is told of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.runs import copy_checkout

C = """// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>
#include <net/tcp.h>

static struct tcp_congestion_ops toy = {
	.ssthresh = tcp_reno_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cong_avoid = tcp_reno_cong_avoid,
	.owner = THIS_MODULE,
	.name = "toy",
};

static int __init toy_init(void)
{
	return tcp_register_congestion_control(&toy);
}

static void __exit toy_exit(void)
{
	tcp_unregister_congestion_control(&toy);
}

module_init(toy_init);
module_exit(toy_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Reno by another name");
"""
ENTRY = """from testbed.congestion.family import Family
from testbed.core.runs.plan import Traits

FAMILIES = (Family("toy", "treatment", "reno", Traits()),)
"""


def test_its_c_and_its_entry(tmp_path: Path) -> None:
    """Like Reno, which it is, to the byte; and a treatment, since its file says so."""
    there = copy_checkout(tmp_path / "checkout")
    (there / "kernel/tcp_toy.c").write_text(C)
    (there / "testbed/congestion/toy.py").write_text(ENTRY)
    words = ["--system", "reno", "toy", "--iterations", "4", "--compute", "100ms", "--bytes", "1MB", "--alone", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "run", *words, "--on", "uml", "--name", "toy", "--json"],
        cwd=there, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reno, toy = json.loads(done.stdout)["results"]
    assert toy["system"] == "toy" and toy["mean_s"] == reno["mean_s"]
    manifest = json.loads((there / "results/toy/toy/1/manifest.json").read_text())
    assert manifest["plan"]["system"]["role"] == "treatment"
    assert manifest["congestion_controls"][0]["kind"] == "module"
