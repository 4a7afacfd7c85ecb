"""What a tag of a packet may say."""

from __future__ import annotations

import pytest

from testbed.transports import Tag


def test_no_packet_chooses_its_path() -> None:
    assert Tag(3, droppable=True) == Tag(3, True, 0)
    with pytest.raises(ValueError, match="path 2"):
        Tag(path=2)
