// SPDX-License-Identifier: GPL-2.0-only
/*
 * Training jobs that share one link in ns-3, for `benchmarks/stacks.py`, which compiles it against the package ``ns3``.
 *
 * MLTCP-Reno is `kernel/mltcp.h` itself with the preset ``paper``, called around ns-3's Reno as the kernel module calls it
 * around Linux's. A job computes, sends the bytes of an iteration, and begins the next when its peer has all of them. The
 * link's queue marks every packet that finds a threshold exceeded (RED on the instantaneous length).
 *
 * Arguments: NAME=VALUE, all of `DEFAULTS`. Standard input: a line a job, its start and the compute time of each iteration,
 * in ns. Standard output: a line an iteration: job, iteration, start, end of computing, and end, in ns.
 */
#include "stacks_jobs.h"

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

const int HEADERS = 52;            // of IPv4 and TCP, with timestamps
const int ETHERNET = 14, PPP = 2;  // ns-3's links have the shorter one

Settings settings = {
    {"rate_bps", 0},       {"mtu", 1500},          {"buffer_packets", 200},  {"mark_packets", 40}, {"bytes", 0},
    {"mltcp", 0},          {"delayed_acks", 1},    {"initial_window", 10},   {"gradual_cwr", 1},   {"access_bps", 100000000000},
    {"rto_min_ms", 200},   {"link_delay_ns", 1000}, {"paced", 0},
};

// ns-3's Reno, whose additive increase counts F times what is ACKed.
class MltcpReno : public TcpLinuxReno {
public:
    MltcpReno() { mltcp_init(&state, &PAPER); }

    std::string GetName() const override { return "MltcpReno"; }

    Ptr<TcpCongestionOps> Fork() override { return CopyObject<MltcpReno>(this); }

    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t, const Time &) override {
        delivered = Simulator::Now();
        bytes_acked += uint32_t(tcb->m_lastAckedSeq.GetValue() - uint32_t(bytes_acked));
    }

    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t segments) override {
        if (tcb->m_cWnd >= tcb->m_ssThresh)
            segments = mltcp_scale(&state, mltcp_factor(&PAPER, mltcp_ratio(&state, &PAPER, bytes_acked)), segments);
        TcpLinuxReno::IncreaseWindow(tcb, segments);
    }

    // The first transmission after a pause, of which ns-3 does not notify its congestion controls.
    void begin_to_send() {
        mltcp_tx_start(&state, &PAPER, 0, bytes_acked, (Simulator::Now() - delivered).GetMicroSeconds());
    }

private:
    mltcp state;
    Time delivered;
    u64 bytes_acked = 0;
};

struct Sender {
    void open(Ptr<Node> from, Ptr<Node> to, Ipv4Address address, Job given) {
        job = given;
        listening = Socket::CreateSocket(to, TcpSocketFactory::GetTypeId());
        listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), 9));
        listening->Listen();
        listening->SetAcceptCallback(
            MakeNullCallback<bool, Ptr<Socket>, const Address &>(),
            Callback<void, Ptr<Socket>, const Address &>([this](Ptr<Socket> peer, const Address &) {
                peer->SetRecvCallback(Callback<void, Ptr<Socket>>([this](Ptr<Socket> here) { receive(here); }));
            }));
        socket = Socket::CreateSocket(from, TcpSocketFactory::GetTypeId());
        if (settings["mltcp"]) {
            mltcp = CreateObject<MltcpReno>();
            DynamicCast<TcpSocketBase>(socket)->SetCongestionControlAlgorithm(mltcp);
        }
        socket->Bind();
        socket->Connect(InetSocketAddress(address, 9));
        socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>([this](Ptr<Socket>, uint32_t) { fill(); }));
        Simulator::Schedule(NanoSeconds(job.start_ns), &Sender::compute, this);
    }

    void compute() {
        start_ns = Simulator::Now().GetNanoSeconds();
        Simulator::Schedule(NanoSeconds(job.compute_ns[iteration]), &Sender::send, this);
    }

    void send() {
        send_ns = Simulator::Now().GetNanoSeconds();
        if (mltcp)
            mltcp->begin_to_send();
        left = expected = settings["bytes"];
        fill();
    }

    // Full segments but for the last of an iteration.
    void fill() {
        const u64 segment = settings["mtu"] - HEADERS;
        while (left) {
            u64 size = std::min<u64>(left, 32 * segment);
            if (socket->GetTxAvailable() < size || socket->Send(Create<Packet>(size)) < 0)
                return;
            left -= size;
        }
    }

    void receive(Ptr<Socket> peer) {
        while (Ptr<Packet> packet = peer->Recv())
            expected -= packet->GetSize();
        if (expected)
            return;
        job.report(iteration, start_ns, send_ns, Simulator::Now().GetNanoSeconds());
        if (++iteration < job.compute_ns.size())
            compute();
    }

    Job job;
    Ptr<Socket> listening, socket;
    Ptr<MltcpReno> mltcp;
    size_t iteration = 0;
    u64 left = 0, expected = 0;
    long long start_ns = 0, send_ns = 0;
};

void set_defaults() {
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpLinuxReno"));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       StringValue(settings["gradual_cwr"] ? "ns3::TcpPrrRecovery" : "ns3::TcpClassicRecovery"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(settings["mtu"] - HEADERS));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(16 << 20));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(settings["initial_window"]));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(settings["delayed_acks"] ? 2 : 1));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(settings["rto_min_ms"])));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(settings["mark_packets"] ? "On" : "Off"));
    Config::SetDefault("ns3::TcpSocketState::EnablePacing", BooleanValue(settings["paced"]));
    const double packet = settings["mtu"];
    Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
    Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::Gentle", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(settings["mtu"]));
    Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(settings["mark_packets"] * packet));
    Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(settings["mark_packets"] * packet));
}

PointToPointHelper link(long long rate_bps, const std::string &queue) {
    PointToPointHelper helper;
    const double shorter = double(settings["mtu"] + PPP) / (settings["mtu"] + ETHERNET);
    helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(u64(rate_bps * shorter))));
    helper.SetDeviceAttribute("Mtu", UintegerValue(settings["mtu"]));
    helper.SetChannelAttribute("Delay", TimeValue(NanoSeconds(settings["link_delay_ns"])));
    helper.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(queue));
    return helper;
}

}  // namespace

int main(int argc, char **argv) {
    if (!read_settings(argc, argv, settings))
        return 2;
    const std::vector<Job> jobs = read_jobs();
    set_defaults();
    NodeContainer left, right, routers;
    left.Create(jobs.size());
    right.Create(jobs.size());
    routers.Create(2);
    InternetStackHelper().Install(NodeContainer(left, right, routers));

    PointToPointHelper access = link(settings["access_bps"], "330p");  // 500 kB
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    auto joined = [&](PointToPointHelper &helper, Ptr<Node> one, Ptr<Node> other, bool marks) {
        NetDeviceContainer ends = helper.Install(one, other);
        TrafficControlHelper queue;
        if (marks) {
            queue.SetRootQueueDisc("ns3::RedQueueDisc", "MaxSize",
                                   StringValue(std::to_string(settings["buffer_packets"] * settings["mtu"]) + "B"));
            queue.Install(ends);
        }
        Ipv4InterfaceContainer given = addresses.Assign(ends);
        if (!marks)
            queue.Uninstall(ends);  // the default: FqCoDel
        addresses.NewNetwork();
        return given.GetAddress(1);
    };
    PointToPointHelper bottleneck = link(settings["rate_bps"], "1p");
    joined(bottleneck, routers.Get(0), routers.Get(1), true);
    std::vector<Ipv4Address> peers;
    for (size_t i = 0; i < jobs.size(); i++) {
        joined(access, left.Get(i), routers.Get(0), false);
        peers.push_back(joined(access, routers.Get(1), right.Get(i), false));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    std::vector<Sender> senders(jobs.size());
    for (size_t i = 0; i < jobs.size(); i++)
        senders[i].open(left.Get(i), right.Get(i), peers[i], jobs[i]);
    Simulator::Run();
    return 0;
}
