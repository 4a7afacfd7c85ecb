#!/usr/bin/env python
"""A Mininet script with two switches, as in a Mininet tutorial."""

from mininet.cli import CLI
from mininet.link import TCLink
from mininet.log import info, setLogLevel
from mininet.net import Mininet
from mininet.node import OVSController
from mininet.topo import Topo


class Pair(Topo):
    def build(self, n=2, bw=50):
        left, right = self.addSwitch("s1"), self.addSwitch("s2")
        self.addLink(left, right, bw=bw, delay="5ms", max_queue_size=100)
        for i in range(1, 2 * n + 1):
            self.addLink(self.addHost(f"h{i}"), left if i <= n else right)


def main():
    net = Mininet(topo=Pair(n=2), link=TCLink, controller=OVSController)
    net.start()
    h1, h3 = net.get("h1", "h3")
    info("*** ping\n")
    print(h1.cmd("ping -c 2", h3.IP()))
    net.pingAll()
    net.iperf((h1, h3))
    CLI(net)
    net.stop()


if __name__ == "__main__":
    setLogLevel("info")
    main()
