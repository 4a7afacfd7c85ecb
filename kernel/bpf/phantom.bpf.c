// SPDX-License-Identifier: GPL-2.0-only
/*
 * RED's marking for kernels without sch_red: a phantom queue. In front of a
 * token bucket it computes the length of the queue behind the bucket, from the
 * packets that have passed here and the bucket's rate. It sets congestion
 * experienced as RED does on the instantaneous queue: with a probability that
 * grows from 0 at min_bytes to @probability at max_bytes, and always from there
 * on. The length is that of the bucket's virtual queue, which drains at its
 * rate at all times, minus the bytes that the bucket lets pass.
 */
#include "tcp.h"

#define BPF_MAP_TYPE_ARRAY	2
#define TC_ACT_UNSPEC		(-1)

const volatile u64 rate_bps = 1000000;
const volatile u32 burst_bytes;
const volatile u32 limit_bytes = 1000000;
const volatile u32 min_bytes = 1;
const volatile u32 max_bytes = 1;
const volatile u32 probability;	/* of 2^32 */

struct bpf_spin_lock {
	u32 val;
};

struct __sk_buff {
	u32 len;
};

struct queue {
	u64 marks;
	u64 empty_at;	/* ns, when the virtual queue will be */
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct queue);
} queue SEC(".maps");

char _license[] SEC("license") = "GPL";

static inline bool chosen(u64 backlog)
{
	u64 most = (u64)probability, span = max_bytes - min_bytes;

	if (backlog < min_bytes)
		return false;
	if (backlog >= max_bytes || !span)
		return true;
	return bpf_get_prandom_u32() < most * (backlog - min_bytes) / span;
}

SEC("tc")
int phantom(struct __sk_buff *skb)
{
	u64 now = bpf_ktime_get_ns(), backlog;
	u64 took = (skb->len * 8000000000ULL + rate_bps / 2) / rate_bps;
	struct queue *q;
	u32 zero = 0;

	q = bpf_map_lookup_elem(&queue, &zero);
	if (!q)
		return TC_ACT_UNSPEC;

	bpf_spin_lock(&q->lock);
	if (q->empty_at < now)
		q->empty_at = now;
	backlog = (q->empty_at - now) * (rate_bps / 1000) / 8000000;
	backlog = backlog > burst_bytes ? backlog - burst_bytes : 0;
	/* What the real queue has no room for is dropped there. */
	if (backlog + skb->len <= limit_bytes)
		q->empty_at += took;
	bpf_spin_unlock(&q->lock);

	if (chosen(backlog) && bpf_skb_ecn_set_ce(skb))
		__sync_fetch_and_add(&q->marks, 1);
	return TC_ACT_UNSPEC;
}
