// SPDX-License-Identifier: GPL-2.0-only
/*
 * Like HPCC (Li et al., SIGCOMM 2019): the window keeps the bytes in flight at a share of the path's capacity.
 *
 * U = (rtt - base) / base + rate / capacity; at eta or more the window becomes reference / (U / eta) + ai, below it
 * reference + ai, which is the reference after a round trip. Unlike in the paper, switches report nothing (no INT).
 * The base is the shortest round trip, the capacity the largest delivery rate, both as the sender has seen them.
 *
 *	mltcp run --on uml --system reno ./tcp_hpcc.c:eta=973 --delay 50us --jobs 2
 */
/* testbed: may_leave_idle */
#include <linux/module.h>
#include <net/tcp.h>
#include "compat.h"

#define ONE	1024	/* 1.0 */

static int eta = 973;
module_param(eta, int, 0444);
MODULE_PARM_DESC(eta, "share of the capacity that is aimed at, in 1/1024");
static int stages = 5;
module_param(stages, int, 0444);
MODULE_PARM_DESC(stages, "round trips of additive increase before a multiplicative one");
static int ai = 1;
module_param(ai, int, 0444);
MODULE_PARM_DESC(ai, "segments of additive increase");

struct hpcc {
	u64 capacity;	/* bytes per second, the most that was delivered */
	u32 reference;	/* window, in segments */
	u32 used;	/* U, averaged, in 1/1024 */
	u32 next;	/* sequence number that ends this round trip */
	u32 stage;
};

static void hpcc_init(struct sock *sk)
{
	struct hpcc *h = inet_csk_ca(sk);

	*h = (struct hpcc){ .reference = tcp_snd_cwnd(tcp_sk(sk)), .used = ONE, .next = tcp_sk(sk)->snd_nxt };
}

static u32 hpcc_used(struct tcp_sock *tp, struct hpcc *h, const struct rate_sample *rs)
{
	u32 base = max_t(u32, tcp_min_rtt(tp), 1);
	u64 rate = div_u64((u64)rs->delivered * tp->mss_cache * USEC_PER_SEC, rs->interval_us);

	h->capacity = max(h->capacity, rate);
	return div_u64((u64)(rs->rtt_us - min_t(u32, base, rs->rtt_us)) * ONE, base) +
	       div64_u64(rate * ONE, max_t(u64, h->capacity, 1));
}

static void hpcc_control(CA_CONG_CONTROL_ARGS)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct hpcc *h = inet_csk_ca(sk);
	u32 window = h->reference;

	if (rs->rtt_us <= 0 || rs->delivered <= 0 || rs->interval_us <= 0)
		return;
	h->used = (7 * h->used + hpcc_used(tp, h, rs)) / 8;
	if (rs->losses > 0)
		h->used = max_t(u32, h->used, 2 * eta);
	if (h->used >= eta || h->stage >= stages)
		window = div_u64((u64)h->reference * eta, max(h->used, 1U)) + ai;
	else
		window += ai;
	window = clamp_t(u32, window, 2, tp->snd_cwnd_clamp);
	if (!before(tp->snd_una, h->next) && tcp_is_cwnd_limited(sk)) {
		h->stage = h->used >= eta || h->stage >= stages ? 0 : h->stage + 1;
		h->reference = window;
		h->next = tp->snd_nxt;
	}
	tcp_snd_cwnd_set(tp, window);
}

static struct tcp_congestion_ops hpcc = {
	.init = hpcc_init,
	.cong_control = hpcc_control,
	.ssthresh = tcp_reno_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "hpcc",
};

static int __init hpcc_register(void)
{
	BUILD_BUG_ON(sizeof(struct hpcc) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&hpcc);
}

static void __exit hpcc_unregister(void)
{
	tcp_unregister_congestion_control(&hpcc);
}

module_init(hpcc_register);
module_exit(hpcc_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A window that keeps the path at a share of its capacity, after HPCC");
