// SPDX-License-Identifier: GPL-2.0-only
/*
 * Training jobs that share one link in htsim, for `benchmarks/stacks.py`, which compiles it against a checkout of
 * github.com/Broadcom/csg-htsim. Input and output are those of `stacks_ns3.cpp`.
 *
 * htsim's TCP is NewReno without SACK and without delayed ACKs, and ignores marks. Here it halves its window at most once per
 * window of marks, at once, and does not grow until that window is ACKed. A packet has no headers: its size is that of the
 * frame, and the payload of an iteration is rounded up to full segments. `kernel/mltcp.h` scales the additive increase.
 */
#include "stacks_jobs.h"

#include "config.h"

#include "ecn.h"
#include "ecnqueue.h"
#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue.h"
#include "route.h"
#include "tcp.h"
#include "tcppacket.h"

#include <algorithm>
#include <memory>

// See `htsim_dumbbell.cpp`: nothing is logged.
LoggedManager Logged::_logged_manager;
LoggedManager::LoggedManager() {}
void LoggedManager::add_logged(Logged *) {}
void LoggedManager::dump_idmap() {}

namespace {

const int HEADERS = 52, ETHERNET = 14;

Settings settings = {
    {"rate_bps", 0}, {"mtu", 1500}, {"buffer_packets", 200},          {"mark_packets", 40},
    {"bytes", 0},    {"mltcp", 0},  {"access_bps", 100000000000}, {"link_delay_ns", 1000},
    {"mark_at_dequeue", 0}, {"slow_start_after_idle", 0},
};

class Reno : public TcpSrc {
public:
    explicit Reno(EventList &events) : TcpSrc(nullptr, nullptr, events) {
        mltcp_init(&state, &PAPER);
        set_ssthresh(UINT32_MAX);
        _flow_size = UINT64_MAX;  // nothing to send
    }

    void receivePacket(Packet &packet) override {
        const u64 acked = static_cast<TcpAck &>(packet).ackno();
        if (acked > _last_acked) {
            delivered = eventlist().now();
            if ((packet.flags() & ECN_ECHO) && acked > reduced_until && !_in_fast_recovery) {
                deflate_window();
                _cwnd = _ssthresh;
                reduced_until = _highest_sent;
            }
        }
        TcpSrc::receivePacket(packet);
    }

    void inflate_window() override {
        if (_last_acked <= reduced_until)
            return;
        if (!settings["mltcp"] || _cwnd < _ssthresh) {
            TcpSrc::inflate_window();
            return;
        }
        const int free = int(_last_acked + _cwnd - _highest_sent);
        if (free < 0)
            return;
        const u32 increase = u32(std::min<int>(free, _mss)) * _mss / _cwnd;
        _cwnd += mltcp_scale(&state, mltcp_factor(&PAPER, mltcp_ratio(&state, &PAPER, _last_acked)), increase);
    }

    void send_until(u64 packets) {
        mltcp_tx_start(&state, &PAPER, 0, _last_acked, u32(timeAsUs(eventlist().now() - delivered)));
        if (settings["slow_start_after_idle"] && eventlist().now() - delivered > _rto)
            _cwnd = std::min<u32>(_cwnd, 10 * _mss);
        _flow_size = packets * _mss - 1;
        send_packets();
    }

private:
    mltcp state;
    simtime_picosec delivered = 0;
    u64 reduced_until = 0;
};

// Marks what finds a threshold exceeded as it arrives. htsim's own queue marks what leaves one.
class MarkingQueue : public Queue {
public:
    MarkingQueue(linkspeed_bps rate, mem_b buffer, EventList &events, mem_b threshold)
        : Queue(rate, buffer, events, nullptr), from(threshold) {}

    void receivePacket(Packet &packet) override {
        if (queuesize() >= from)
            packet.set_flags(packet.flags() | ECN_CE);
        Queue::receivePacket(packet);
    }

private:
    mem_b from;
};

struct Link {
    Link(Queue *made, EventList &events) : queue(made), pipe(timeFromNs(settings["link_delay_ns"]), events) {}

    void append_to(Route &route) {
        route.push_back(queue.get());
        route.push_back(&pipe);
    }

    std::unique_ptr<Queue> queue;
    Pipe pipe;
};

class Worker : public EventSource, public TcpSink {
public:
    Worker(Job given, u64 packets_an_iteration, EventList &all, mem_b frame)
        : EventSource(all, "job"), job(given), packets(packets_an_iteration), source(all), links() {
        for (int i = 0; i < 4; i++)
            links.emplace_back(new Link(new Queue(settings["access_bps"], 100000 * frame, all, nullptr), all));
    }

    void open(Link &there, Link &back) {
        for (Link *link : {links[0].get(), &there, links[1].get()})
            link->append_to(out);
        out.push_back(this);
        for (Link *link : {links[2].get(), &back, links[3].get()})
            link->append_to(in);
        in.push_back(&source);
        source.connect(out, in, *this, 0);
        eventlist().sourceIsPending(*this, timeFromNs(job.start_ns) + timeFromNs(job.compute_ns[0]));
        start_ns = job.start_ns;
    }

    // It has computed.
    void doNextEvent() override {
        send_ns = now_ns();
        source.send_until((iteration + 1) * packets);
    }

    void receivePacket(Packet &packet) override {
        TcpSink::receivePacket(packet);
        if (done() || _cumulative_ack < 1 + (iteration + 1) * packets * Packet::data_packet_size())
            return;
        job.report(iteration, start_ns, send_ns, now_ns());
        start_ns = now_ns();
        if (++iteration < job.compute_ns.size())
            eventlist().sourceIsPendingRel(*this, timeFromNs(job.compute_ns[iteration]));
    }

    const string &nodename() override { return TcpSink::nodename(); }

    bool done() const { return iteration == job.compute_ns.size(); }

    Reno &sender() { return source; }

private:
    long long now_ns() { return (long long)(eventlist().now() / 1000); }

    Job job;
    u64 packets;
    Reno source;
    std::vector<std::unique_ptr<Link>> links;
    Route out, in;
    size_t iteration = 0;
    long long start_ns = 0, send_ns = 0;
};

}  // namespace

int main(int argc, char **argv) {
    if (!read_settings(argc, argv, settings))
        return 2;
    EventList events;
    events.setEndtime(timeFromSec(1e6));
    const mem_b frame = settings["mtu"] + ETHERNET;
    const u64 segment = settings["mtu"] - HEADERS;
    Packet::set_packet_size(int(frame));
    const mem_b buffer = settings["buffer_packets"] * frame;
    const mem_b threshold = settings["mark_packets"] * frame;
    Queue *marking = new MarkingQueue(settings["rate_bps"], buffer, events, threshold);
    if (settings["mark_at_dequeue"])
        marking = new ECNQueue(settings["rate_bps"], buffer, events, nullptr, threshold);
    Link there(marking, events);
    Link back(new Queue(settings["rate_bps"], buffer, events, nullptr), events);
    TcpRtxTimerScanner timer(timeFromMs(10), events);
    std::vector<std::unique_ptr<Worker>> workers;
    for (const Job &job : read_jobs()) {
        workers.emplace_back(new Worker(job, (settings["bytes"] + segment - 1) / segment, events, frame));
        timer.registerTcp(workers.back()->sender());
        workers.back()->open(there, back);
    }
    while (std::any_of(workers.begin(), workers.end(), [](const auto &one) { return !one->done(); }))
        events.doNextEvent();
    return 0;
}
