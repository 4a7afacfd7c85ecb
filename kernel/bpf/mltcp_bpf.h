/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every MLTCP congestion control in eBPF shares: its parameters, and the
 * state of each flow, published once an iteration for whoever observes (between
 * boundaries, r follows from bytes_acked alone).
 */
#ifndef MLTCP_BPF_H
#define MLTCP_BPF_H

#include "params_bpf.h"
#include "../mltcp_tcp.h"

MLTCP_PARAMETERS(CA_GLOBAL)

static inline struct mltcp_params mltcp_params(void)
{
	return (struct mltcp_params){ MLTCP_PARAMETERS(CA_MEMBER) };
}

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

static inline void mltcp_bpf_init(struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params();

	mltcp_init(m, &p);
}

static inline u32 mltcp_bpf_scale(struct sock *sk, struct mltcp *m, u32 acked)
{
	const struct mltcp_params p = mltcp_params();

	return mltcp_sk_scale(sk, m, &p, acked);
}

static inline void mltcp_bpf_tx_start(struct sock *sk, struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params();

	if (mltcp_sk_tx_start(sk, m, &p)) {
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
