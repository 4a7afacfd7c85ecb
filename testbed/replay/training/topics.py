"""A text to continue: Python's own documentation of its language (`pydoc_data.topics`), which every Python brings.

Another version of Python has another text.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pydoc_data.topics import topics

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from testbed.replay.training import Examples

CHARACTERS = 64  # the most frequent ones; all others are one
LENGTH = 24  # characters of an example
APART = 7  # distance between consecutive examples, in characters
TEST_SHARE, TESTED = 0.1, 1000


@cache
def examples() -> tuple[Examples, Examples]:
    """Return training and test examples; the test uses the end of the text."""
    text = "\n".join(topics[name] for name in sorted(topics))
    numbers = {character: number for number, (character, _) in enumerate(Counter(text).most_common(CHARACTERS - 1))}
    whole = np.array([numbers.get(character, CHARACTERS - 1) for character in text], np.uint8)
    split = round((1 - TEST_SHARE) * len(whole))
    test = _cut(whole[split:])
    few = slice(None, None, max(1, len(test.classes) // TESTED))
    return _cut(whole[:split]), Examples(test.inputs[few], test.classes[few])


def _cut(text: np.ndarray) -> Examples:
    windows = sliding_window_view(text, LENGTH + 1)[::APART]
    return Examples(windows[:, :-1], windows[:, 1:].astype(np.int64))
