"""What a training in a ring cannot do with holes is refused before anything runs."""

from __future__ import annotations

import pytest

from testbed import spec
from testbed.cli import main
from testbed.core.errors import RequestError
from testbed.planning.plan import planned

ASKED = {"train": "perceptron", "compute": "1ms", "workers": 3, "jobs": 1}


@pytest.mark.parametrize("missing", ["keep", "local"])
def test_in_a_ring_nothing_stood_in_a_hole_before(missing: str) -> None:
    system = f"mlt:missing={missing}"
    with pytest.raises(RequestError, match=r"job 0 .*perceptron .*fill=local"):
        planned(spec.read(None, ASKED | {"collective": "ring", "system": [system]}))
    planned(spec.read(None, ASKED | {"collective": "ring", "system": ["mlt:missing=zero"]}))
    planned(spec.read(None, ASKED | {"collective": "parameter_server", "system": [system]}))
    planned(spec.read(None, {"workers": 3, "jobs": 1, "collective": "ring", "trace": "resnet50", "system": [system]}))


def test_it_is_said_in_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --train perceptron --compute 1ms --workers 3 --jobs 1 --collective ring --system mlt:missing=keep --dry-run"
    assert main(words.split()) == 2
    said = capsys.readouterr()
    assert (
        not said.out and said.err.startswith("error: job 0 trains perceptron in a ring") and said.err.count("\n") == 1
    )
