// SPDX-License-Identifier: GPL-2.0-only
/* Reno in eBPF, as mltcp_reno.bpf.c is without MLTCP: what its cost is compared with. */
#include "guard.h"

char _license[] SEC("license") = "GPL";

SEC("struct_ops/reno_init")
void BPF_PROG(reno_init, struct sock *sk)
{
	ca_guard_init(inet_csk_ca(sk), sk);
}

SEC("struct_ops/reno_cong_avoid")
void BPF_PROG(reno_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/reno_in_ack_event")
void BPF_PROG(reno_in_ack_event, struct sock *sk, u32 flags)
{
	ca_guard_ack(inet_csk_ca(sk), sk);
}

SEC("struct_ops/reno_ssthresh")
u32 BPF_PROG(reno_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops/reno_undo_cwnd")
u32 BPF_PROG(reno_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops reno = {
	.init = (void *)reno_init,
	.ssthresh = (void *)reno_ssthresh,
	.cong_avoid = (void *)reno_cong_avoid,
	.in_ack_event = (void *)reno_in_ack_event,
	.undo_cwnd = (void *)reno_undo_cwnd,
	.name = "bench_reno",
};
