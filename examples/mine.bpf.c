// SPDX-License-Identifier: GPL-2.0-only
/* A custom algorithm in eBPF, for --on host --system reno ./FILE:step=4: Reno that grows faster. */
/* testbed: base=reno */
#include "guard.h"

const volatile u32 step = 2;
char _license[] SEC("license") = "GPL";

SEC("struct_ops/mine_cong_avoid")
void BPF_PROG(mine_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, tcp_in_slow_start(tcp_sk(sk)) ? acked : step * acked);
}

SEC("struct_ops/mine_ssthresh")
u32 BPF_PROG(mine_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops/mine_undo_cwnd")
u32 BPF_PROG(mine_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops mine = {
	.cong_avoid = (void *)mine_cong_avoid,
	.ssthresh = (void *)mine_ssthresh,
	.undo_cwnd = (void *)mine_undo_cwnd,
	.name = "mine",
};
