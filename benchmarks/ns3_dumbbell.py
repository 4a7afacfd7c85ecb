"""Two bulk flows over a dumbbell in ns-3, for `benchmarks/virtual_time.py`.

Run by the Python of an environment with the package ``ns3``; prints JSON: payload bytes
received, seconds simulated, wall seconds of ``Simulator.Run`` alone.
"""

from __future__ import annotations

import json
import sys
import time

from ns import ns


def main(rate_bps: int, mtu: int, buffer_bytes: int, seconds: float) -> None:
    ns.Config.SetDefault("ns3::TcpL4Protocol::SocketType", ns.StringValue("ns3::TcpLinuxReno"))
    ns.Config.SetDefault("ns3::TcpSocket::SegmentSize", ns.UintegerValue(mtu - 52))
    for key in ("SndBufSize", "RcvBufSize"):
        ns.Config.SetDefault(f"ns3::TcpSocket::{key}", ns.UintegerValue(16 << 20))

    left, right, routers = ns.NodeContainer(), ns.NodeContainer(), ns.NodeContainer()
    left.Create(2)
    right.Create(2)
    routers.Create(2)

    def link(rate: int, queue: str) -> ns.PointToPointHelper:
        helper = ns.PointToPointHelper()
        helper.SetDeviceAttribute("DataRate", ns.StringValue(f"{rate}bps"))
        helper.SetDeviceAttribute("Mtu", ns.UintegerValue(mtu))
        helper.SetChannelAttribute("Delay", ns.StringValue("1us"))
        helper.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", ns.StringValue(queue))
        return helper

    stack = ns.InternetStackHelper()
    stack.InstallAll()
    access, bottleneck = link(10 * rate_bps, "100000p"), link(rate_bps, f"{buffer_bytes}B")
    pairs = [access.Install(left.Get(i), routers.Get(0)) for i in (0, 1)]
    pairs += [bottleneck.Install(routers.Get(0), routers.Get(1))]
    pairs += [access.Install(routers.Get(1), right.Get(i)) for i in (0, 1)]
    addresses = []
    for i, pair in enumerate(pairs):
        helper = ns.Ipv4AddressHelper()
        helper.SetBase(ns.Ipv4Address(f"10.0.{i}.0"), ns.Ipv4Mask("255.255.255.0"))
        addresses.append(helper.Assign(pair))
    ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()

    sinks = []
    for i in (0, 1):
        sink = ns.PacketSinkHelper(
            "ns3::TcpSocketFactory", ns.InetSocketAddress(ns.Ipv4Address.GetAny(), 9).ConvertTo()
        )
        sinks.append(sink.Install(right.Get(i)))
        there = ns.InetSocketAddress(addresses[3 + i].GetAddress(1), 9).ConvertTo()
        source = ns.BulkSendHelper("ns3::TcpSocketFactory", there)
        source.SetAttribute("MaxBytes", ns.UintegerValue(0))
        source.SetAttribute("SendSize", ns.UintegerValue(mtu - 52))
        source.Install(left.Get(i)).Start(ns.Seconds(0.01 * i))
    ns.Simulator.Stop(ns.Seconds(seconds))
    begun = time.perf_counter()
    ns.Simulator.Run()
    wall = time.perf_counter() - begun
    received = sum(apps.Get(0).GetObject[ns.PacketSink]().GetTotalRx() for apps in sinks)
    print(json.dumps({"bytes": int(received), "virtual_s": seconds, "wall_s": wall}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
