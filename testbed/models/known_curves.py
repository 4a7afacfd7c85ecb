"""Published curves of congestion controls and queues, as formulas: reference values for stock protocols on a testbed.

Windows are in segments, queues in frames, rates in fractions of a link.
"""

from __future__ import annotations

from math import sqrt

CUBIC_C, CUBIC_BETA = 0.4, 0.7  # RFC 9438, 4.6 and 5
RANDOM_RENO, RANDOM_CUBIC = (
    1.31 / 1.22,
    1.3 / 1.054,
)  # mean windows where losses are independent ÷ where they are periodic


def reno_window(loss: float) -> float:
    """Mean window where a share ``loss`` of the packets is lost, one at a time (Mathis et al., CCR 1997: 1.22 ÷ √p)."""
    return sqrt(1.5 / loss)


def cubic_window(loss: float, rtt_s: float) -> float:
    """Return CUBIC's mean window in segments (RFC 9438, section 5.1); at least Reno's, in its Reno-friendly region."""
    return max(_cubic_alone(loss, rtt_s), reno_window(loss))


def cubic_window_random(loss: float, rtt_s: float) -> float:
    """Return CUBIC's mean window with independent random losses, which is larger than with regular ones (Poojary and
    Sharma, arXiv 1510.08496)."""
    return max(RANDOM_CUBIC * _cubic_alone(loss, rtt_s), RANDOM_RENO * reno_window(loss))


def _cubic_alone(loss: float, rtt_s: float) -> float:
    rise = CUBIC_C * (3 + CUBIC_BETA) / (4 * (1 - CUBIC_BETA))
    return float((rise * (rtt_s / loss) ** 3) ** 0.25)


def bbr_share(loss: float) -> float:
    """The share of a link that BBR delivers: its rate follows deliveries, not losses (Cardwell et al., ACM Queue 2016; below its cliff at 20 %)."""
    return 1 - loss


def dctcp_queue(threshold: float, bdp: float, flows: int) -> float:
    """Mean queue of ``flows`` that DCTCP keeps at a marking threshold K (Alizadeh et al., SIGCOMM 2010, section 3.3).

    The queue is a sawtooth below K + N, of amplitude ½ √(2 N (C·RTT + K)).
    """
    return threshold + flows - sqrt(2 * flows * (bdp + threshold)) / 4


def red_share(probability: float) -> float:
    """Share of the packets that RED marks, whose gaps are uniform (Floyd and Jacobson, ToN 1993, method 2: 1 ÷ 2p + ½ in the mean)."""
    return 2 * probability / (1 + probability)


def stalled_goodput(block_s: float, rto_s: float) -> float:
    """Share of the link of a block that takes ``block_s`` at the link's rate and waits for one timeout (Phanishayee et al., FAST 2008)."""
    return block_s / (block_s + rto_s)
