"""Where gains end: of each boundary the claim that holds on this side of it, and the one that looks behind it."""

from __future__ import annotations

from dataclasses import dataclass

from testbed import registry

lossy = registry.find(registry.FIGURE, "lossy")
ltp_accuracy = registry.find(registry.FIGURE, "ltp_accuracy")
ltp_incast = registry.find(registry.FIGURE, "ltp_incast")
ltp_loss = registry.find(registry.FIGURE, "ltp_loss")
mlt_fct = registry.find(registry.FIGURE, "mlt_fct")
mlt_loss = registry.find(registry.FIGURE, "mlt_loss")
mlt_speedup = registry.find(registry.FIGURE, "mlt_speedup")


@dataclass(frozen=True)
class Boundary:
    transport: str
    behind: str  # what is different there
    gain: str  # a claim
    there: str


BOUNDARIES = (
    Boundary("LTP", "an incast, idle round trips of microseconds: a least timeout of 5 ms, where Linux has 200 ms (RACK finds losses in both)", ltp_incast.CLAIM, ltp_incast.SMALL),
    Boundary("LTP", "an incast: over the same protocol that delivers everything, so that tolerance alone counts", ltp_incast.CLAIM, ltp_incast.TOLERANCE),
    Boundary("LTP", "random loss: over the fastest TCP, not the slowest", ltp_loss.CLAIM, ltp_loss.BEST),
    Boundary("LTP", "random loss: round trips below a millisecond, over the fastest TCP", ltp_loss.CLAIM, ltp_loss.SHORT),
    Boundary("LTP", "no loss", ltp_loss.BEST, ltp_loss.NONE),
    Boundary("LTP", "time to an accuracy, not time of an iteration", ltp_loss.BEST, ltp_accuracy.SOONER),
    Boundary("MLT", "1 % loss on a link, idle round trips of microseconds: a least timeout of 5 ms (and RACK)", mlt_loss.FASTER, mlt_loss.SMALL),
    Boundary("MLT", "1 % loss on a link, over CUBIC, idle round trips of microseconds: a least timeout of 5 ms (and RACK)", mlt_loss.CUBIC, mlt_loss.CUBIC_SMALL),
    Boundary("MLT", "1 % loss on a link, least timeout 5 ms: over TCP that sends as many bytes, not all", mlt_loss.FASTER, mlt_loss.EQUAL),
    Boundary("MLT", "no loss", mlt_loss.FASTER, mlt_loss.NONE),
    Boundary("MLT", "parameter servers, the model and number of workers that gain least", mlt_speedup.MOST, mlt_speedup.SERVERS),
    Boundary("MLT", "a ring, the model and number of workers that gain least", mlt_speedup.MOST, mlt_speedup.RING),
    Boundary("MLT", "fully sharded, parameters arrive whole", mlt_speedup.MOST, mlt_speedup.FSDP),
    Boundary("MLT", "TCP has bands of priority, too", mlt_fct.MEAN, mlt_fct.BANDS),
    Boundary("LTP, MLT, OptiReduce", "TCP compresses in place of waiting, least timeout 5 ms", lossy.SOONER, lossy.COMPRESSED),
)  # fmt: skip
