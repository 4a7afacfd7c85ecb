// SPDX-License-Identifier: BSD-3-Clause
/*
 * Two bulk flows over a dumbbell in htsim, for `benchmarks/virtual_time.py`, which compiles it
 * against a checkout of github.com/Broadcom/csg-htsim. The same as in `ns3_dumbbell.py`:
 * access links of ten times the rate, 1 us a link, the second flow 10 ms later.
 *
 * The last line it prints is JSON: full packets received, seconds simulated, wall seconds of the
 * event loop alone.
 *
 * What htsim's TCP does otherwise than the kernel's Reno: NewReno without SACK, RACK or PRR; an
 * ACK for each packet, never a delayed one; no receive window, so nobody is ever limited by it; a
 * retransmission timer of at least 250 ms (200 ms) that is looked at every 10 ms, as in htsim's
 * own programs. A packet has no headers: its MTU is all payload, and an ACK has 40 bytes. Routes
 * are fixed by the source, and hosts are no more than sender and receiver. The initial window is
 * ten packets in both; the first slow start ends at 100 packets in htsim unless it is told, as
 * here, that it ends with a loss.
 */
#include "config.h"

#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue.h"
#include "route.h"
#include "tcp.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

// htsim keeps a list of all it could log, next to loggers for all of its protocols, which would
// have to be compiled, too. Nothing is logged here, so nothing is kept.
LoggedManager Logged::_logged_manager;
LoggedManager::LoggedManager() {}
void LoggedManager::add_logged(Logged *) {}
void LoggedManager::dump_idmap() {}

namespace {

struct Link {
    Link(linkspeed_bps rate, mem_b buffer, EventList &events)
        : queue(rate, buffer, events, nullptr), pipe(timeFromUs(1.0), events) {}

    void append_to(Route &route) {
        route.push_back(&queue);
        route.push_back(&pipe);
    }

    Queue queue;
    Pipe pipe;
};

struct Flow {
    Flow(linkspeed_bps access, mem_b buffer, EventList &events)
        : source(nullptr, nullptr, events), from_source(access, buffer, events), to_sink(access, buffer, events),
          from_sink(access, buffer, events), to_source(access, buffer, events) {}

    void start(Link &there, Link &back, simtime_picosec when) {
        for (Link *link : {&from_source, &there, &to_sink})
            link->append_to(out);
        out.push_back(&sink);
        for (Link *link : {&from_sink, &back, &to_source})
            link->append_to(in);
        in.push_back(&source);
        source.set_ssthresh(UINT32_MAX);
        source.connect(out, in, sink, when);
    }

    // What arrived, in order or not: without SACK the sender may take long to fill a hole. Counted
    // in bytes by htsim, the one of the SYN among them.
    uint64_t packets(int mtu) const { return sink._packets / mtu; }

    TcpSrc source;
    TcpSink sink;
    Link from_source, to_sink, from_sink, to_source;
    Route out, in;
};

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: %s RATE_BPS MTU BUFFER_BYTES SECONDS\n", argv[0]);
        return 2;
    }
    const linkspeed_bps rate = std::strtoull(argv[1], nullptr, 10);
    const int mtu = std::atoi(argv[2]);
    const mem_b buffer = std::atoll(argv[3]);
    const double seconds = std::atof(argv[4]);

    EventList events;
    events.setEndtime(timeFromSec(seconds));
    Packet::set_packet_size(mtu);
    Link there(rate, buffer, events), back(rate, buffer, events);
    TcpRtxTimerScanner timer(timeFromMs(10), events);
    std::unique_ptr<Flow> flows[2];
    for (int i = 0; i < 2; i++) {
        flows[i].reset(new Flow(10 * rate, mem_b(100000) * mtu, events));
        timer.registerTcp(flows[i]->source);
        flows[i]->start(there, back, timeFromMs(10 * i));
    }

    const auto begun = std::chrono::steady_clock::now();
    while (events.doNextEvent()) {
    }
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begun;
    const unsigned long long packets = flows[0]->packets(mtu) + flows[1]->packets(mtu);
    std::printf("{\"packets\": %llu, \"virtual_s\": %.9g, \"wall_s\": %.9g}\n", packets, seconds, wall.count());
    return 0;
}
