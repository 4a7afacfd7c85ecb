/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The part that all MLTCP congestion controls in eBPF share: their parameters,
 * and the state of each flow. Observers get the state once per iteration;
 * between boundaries, r follows from bytes_acked alone.
 */
#ifndef MLTCP_BPF_H
#define MLTCP_BPF_H

#include "params_bpf.h"
#include "../mltcp.h"

MLTCP_PARAMETERS(CA_GLOBAL)

static inline struct mltcp_params mltcp_params(void)
{
	return (struct mltcp_params){ MLTCP_PARAMETERS(CA_MEMBER) };
}

/* A flow, in the namespace of that cookie; IPv4 as IPv6 has it. */
struct mltcp_flow_key {
	u64 netns;
	__be32 saddr[4], daddr[4];
	u16 sport;		/* host order */
	__be16 dport;
	u32 unused;
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

static inline u64 mltcp_netns(const struct sock *sk)
{
	return sk->__sk_common.skc_net.net->net_cookie;
}

static inline void mltcp_mapped(__be32 *to, __be32 address)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = bpf_htonl(0xffff);
	to[3] = address;
}

static inline struct mltcp_flow_key mltcp_flow_key(const struct sock *sk)
{
	const struct sock_common *common = &sk->__sk_common;
	struct mltcp_flow_key key = {
		.netns = mltcp_netns(sk),
		.sport = common->skc_num,
		.dport = common->skc_dport,
	};
	u32 i;

	if (common->skc_family == AF_INET6 &&
	    bpf_core_field_exists(common->skc_v6_daddr)) {
		for (i = 0; i < 4; i++) {
			key.saddr[i] = common->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
			key.daddr[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
		}
	} else {
		mltcp_mapped(key.saddr, common->skc_rcv_saddr);
		mltcp_mapped(key.daddr, common->skc_daddr);
	}
	return key;
}

/*
 * One ratio for a job, as in mltcp_job.h. Each of its sums changes atomically.
 * Their reciprocal is not stored, so an ACK of a job costs a division.
 */
struct mltcp_job_key {
	u64 netns;
	u32 mark;
	u32 unused;
};

struct mltcp_job {
	u64 sent;
	u64 total_bytes;
	u64 members;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct mltcp_job_key);
	__type(value, struct mltcp_job);
} mltcp_jobs SEC(".maps");

/* What a socket has added to its job's; unused: it is of none. */
struct mltcp_member {
	struct mltcp_job_key key;
	u64 sent;
	u64 total_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mltcp_member);
} mltcp_members SEC(".maps");

static inline struct mltcp_job_key mltcp_job_key(const struct sock *sk)
{
	return (struct mltcp_job_key){
		.netns = mltcp_netns(sk), .mark = sk->sk_mark
	};
}

static inline bool mltcp_job_ratio(const struct sock *sk,
				   const struct mltcp_params *p, s32 *ratio)
{
	struct mltcp_job_key key = mltcp_job_key(sk);
	struct mltcp_job *job;
	u64 sent, total;

	if (!key.mark)
		return false;
	job = bpf_map_lookup_elem(&mltcp_jobs, &key);
	if (!job)
		return false;
	sent = job->sent;
	total = job->total_bytes;
	if (p->ratio == MLTCP_LOGARITHMIC)
		*ratio = mltcp_log_ratio(sent);
	else if (!total || total > MLTCP_BYTES_MAX || sent / 2 > total)
		*ratio = -1;
	else
		*ratio = sent < total ? (s32)((sent << 10) / total) : MLTCP_ONE;
	return true;
}

#include "../mltcp_tcp.h"

/* From now on this is what one member has sent, and sends in an iteration. */
static inline void mltcp_job_count(struct mltcp_member *member, u64 sent,
				   u64 total_bytes)
{
	struct mltcp_job_key key = member->key;
	struct mltcp_job *job = bpf_map_lookup_elem(&mltcp_jobs, &key);

	if (!job)
		return;
	__sync_fetch_and_add(&job->sent, sent - member->sent);
	__sync_fetch_and_add(&job->total_bytes, total_bytes - member->total_bytes);
	member->sent = sent;
	member->total_bytes = total_bytes;
}

static inline void mltcp_job_leave(struct mltcp_member *member)
{
	struct mltcp_job_key key = member->key;
	struct mltcp_job *job;

	if (!key.mark)
		return;
	mltcp_job_count(member, 0, 0);
	job = bpf_map_lookup_elem(&mltcp_jobs, &key);
	if (job && __sync_fetch_and_add(&job->members, -1) == 1)
		bpf_map_delete_elem(&mltcp_jobs, &key);
	member->key.mark = 0;
}

/* A mark may be set at any time before a socket is used. */
static inline void mltcp_job_join(struct sock *sk)
{
	struct mltcp_job_key key = mltcp_job_key(sk);
	const struct mltcp_job fresh = {};
	struct mltcp_member *member;
	struct mltcp_job *job;

	member = bpf_sk_storage_get(&mltcp_members, sk, 0,
				    BPF_SK_STORAGE_GET_F_CREATE);
	if (!member || member->key.mark == key.mark)
		return;
	mltcp_job_leave(member);
	if (!key.mark)
		return;
	bpf_map_update_elem(&mltcp_jobs, &key, &fresh, BPF_NOEXIST);
	job = bpf_map_lookup_elem(&mltcp_jobs, &key);
	if (!job)
		return;
	__sync_fetch_and_add(&job->members, 1);
	member->key = key;
	member->sent = 0;
	member->total_bytes = 0;
}

/* Report this socket's progress to its job, if it has one. */
static inline void mltcp_bpf_count(struct sock *sk, const struct mltcp *m,
				   const struct mltcp_params *p)
{
	u64 bytes_acked = tcp_sk(sk)->bytes_acked;
	struct mltcp_member *member;

	if (!p->share)
		return;
	member = bpf_sk_storage_get(&mltcp_members, sk, 0, 0);
	if (!member || !member->key.mark)
		return;
	if (mltcp_ratio(m, p, bytes_acked) < 0)
		mltcp_job_count(member, 0, 0);
	else
		mltcp_job_count(member, mltcp_sent(m, bytes_acked),
				m->total_bytes);
}

static inline void mltcp_bpf_init(struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params();

	mltcp_init(m, &p);
}

static inline u32 mltcp_bpf_factor(struct sock *sk, const struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params();

	mltcp_bpf_count(sk, m, &p);
	return mltcp_sk_factor(sk, m, &p);
}

static inline u32 mltcp_bpf_scale(struct sock *sk, struct mltcp *m, u32 acked)
{
	const struct mltcp_params p = mltcp_params();

	mltcp_bpf_count(sk, m, &p);
	return mltcp_sk_scale(sk, m, &p, acked);
}

static inline u32 mltcp_bpf_reduced(struct sock *sk, const struct mltcp *m,
				    u32 reduced)
{
	const struct mltcp_params p = mltcp_params();

	return mltcp_sk_reduced(sk, m, &p, reduced);
}

static inline void mltcp_bpf_tx_start(struct sock *sk, struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params();

	if (p.share)
		mltcp_job_join(sk);
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
	mltcp_bpf_count(sk, m, &p);
}

static inline void mltcp_bpf_release(struct sock *sk)
{
	struct mltcp_flow_key key = mltcp_flow_key(sk);
	struct mltcp_member *member;

	bpf_map_delete_elem(&mltcp_flows, &key);
	if (!share)
		return;
	member = bpf_sk_storage_get(&mltcp_members, sk, 0, 0);
	if (member)
		mltcp_job_leave(member);
}

#endif /* MLTCP_BPF_H */
