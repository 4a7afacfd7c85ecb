/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every MLTCP congestion control in eBPF shares: its parameters, set in
 * .rodata before load, and the state of each flow, published once an iteration
 * for whoever observes (between boundaries, r follows from bytes_acked alone).
 */
#ifndef MLTCP_BPF_H
#define MLTCP_BPF_H

#include "tcp.h"
#include "../mltcp.h"

/* Reno and CUBIC defaults of the paper as recalled: F(r) = 1.75 r + 0.25. */
const volatile s32 slope = 1792;
const volatile s32 intercept = 256;
const volatile u32 gap_factor = 512;
const volatile u32 first_gap_us = 1000;
const volatile u64 total_bytes = 0;

#define MLTCP_PARAMS \
	{ slope, intercept, gap_factor, first_gap_us, total_bytes }

struct mltcp_flow_key {
	__be32 saddr, daddr;
	u16 sport;		/* host order */
	__be16 dport;
};

struct mltcp_flow {
	u64 start;
	u64 total_bytes;
	u32 iterations;
	u32 gap_us;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct mltcp_flow_key);
	__type(value, struct mltcp_flow);
} mltcp_flows SEC(".maps");

static inline struct mltcp_flow_key mltcp_flow_key(const struct sock *sk)
{
	struct mltcp_flow_key key = {
		.saddr = sk->__sk_common.skc_rcv_saddr,
		.daddr = sk->__sk_common.skc_daddr,
		.sport = sk->__sk_common.skc_num,
		.dport = sk->__sk_common.skc_dport,
	};
	return key;
}

static inline void mltcp_bpf_tx_start(struct sock *sk, struct mltcp *m)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct mltcp_params p = MLTCP_PARAMS;
	u64 gap_us = tp->tcp_mstamp - tp->delivered_mstamp;

	/* A retransmission after a timeout starts transmission, too. */
	if (tp->packets_out)
		return;
	if (gap_us > 0xffffffffULL)
		gap_us = 0xffffffffULL;
	if (mltcp_tx_start(m, &p, tp->bytes_acked, gap_us)) {
		struct mltcp_flow_key key = mltcp_flow_key(sk);
		struct mltcp_flow flow = {
			.start = m->start,
			.total_bytes = m->total_bytes,
			.iterations = m->iterations,
			.gap_us = m->gap_us,
		};

		bpf_map_update_elem(&mltcp_flows, &key, &flow, BPF_ANY);
	}
}

static inline void mltcp_bpf_release(const struct sock *sk)
{
	struct mltcp_flow_key key = mltcp_flow_key(sk);

	bpf_map_delete_elem(&mltcp_flows, &key);
}

#endif /* MLTCP_BPF_H */
