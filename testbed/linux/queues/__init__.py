"""Queueing disciplines of a link: shapers, delay and loss, ECN marking."""

from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.netem import Netem
from testbed.linux.queues.prio import Prio
from testbed.linux.queues.red import Red
from testbed.linux.queues.tbf import Tbf

__all__ = ["Fifo", "Netem", "Prio", "Red", "Tbf"]
