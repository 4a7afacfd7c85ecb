/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A kernel may skip an eBPF program: in recursion, or because a hardened kernel
 * exempts the task that happens to be current when the packet arrives. The
 * caller of ssthresh() or undo_cwnd() then uses an arbitrary value from the
 * stack as the answer. A congestion window of billions of segments follows.
 *
 * Skipping cannot be seen from here, but its effect can: neither the window nor
 * the threshold ever outgrows twice the largest window before it. At the next
 * ACK both are set to the result of halving the window, and counted.
 */
#ifndef MLTCP_BPF_GUARD_H
#define MLTCP_BPF_GUARD_H

#include "tcp.h"

#define TCP_INFINITE_SSTHRESH 0x7fffffff

struct ca_guard {
	u32 cwnd;	/* at the last ACK */
	u32 highest;	/* ever */
};

/* How often something had to be put back; read by the testbed after a run. */
u64 ca_repairs = 0;

static inline void ca_guard_init(struct ca_guard *g, const struct sock *sk)
{
	g->cwnd = tcp_sk(sk)->snd_cwnd;
	g->highest = g->cwnd;
}

/* To be called from in_ack_event, which comes before any use of the window. */
static inline void ca_guard_ack(struct ca_guard *g, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;
	u32 limit = 2 * g->highest + 64;
	u32 halved = g->cwnd / 2 > 2 ? g->cwnd / 2 : 2;

	if ((ssthresh > limit && ssthresh != TCP_INFINITE_SSTHRESH) || cwnd > limit)
		__sync_fetch_and_add(&ca_repairs, 1);
	if (ssthresh > limit && ssthresh != TCP_INFINITE_SSTHRESH)
		tp->snd_ssthresh = halved;
	if (cwnd > limit) {
		cwnd = halved;
		tp->snd_cwnd = cwnd;
		tp->snd_cwnd_cnt = 0;
	}
	g->cwnd = cwnd;
	if (g->highest < cwnd)
		g->highest = cwnd;
}

#endif /* MLTCP_BPF_GUARD_H */
