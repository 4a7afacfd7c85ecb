// SPDX-License-Identifier: GPL-2.0-only
/*
 * Like Swift (Kumar et al., SIGCOMM 2020): the window follows a target of the round trip.
 *
 * Below the target the window grows by ai segments per round trip. Above it, once a round trip, it shrinks by
 * beta (delay - target) / delay, by half at most. The target grows for small windows (flow scaling).
 * Other than the paper's: one delay, that of the whole path, without time stamps of NICs, no window below two segments.
 *
 *	mltcp run --on uml --system reno ./tcp_swift.c:target_us=300 --delay 50us --jobs 2
 */
/* testbed: may_leave_idle */
#include <linux/module.h>
#include <net/tcp.h>
#include "compat.h"

#define ONE	1024	/* 1.0 of windows and shares */

static int target_us = 300;
module_param(target_us, int, 0444);
MODULE_PARM_DESC(target_us, "target of the round trip, in us");
static int scaling_us = 100;
module_param(scaling_us, int, 0444);
MODULE_PARM_DESC(scaling_us, "what a window of one segment adds to the target, in us");
static int ai = 1;
module_param(ai, int, 0444);
MODULE_PARM_DESC(ai, "segments that the window grows by per round trip");
static int beta = 819;
module_param(beta, int, 0444);
MODULE_PARM_DESC(beta, "strength of the decrease, in 1/1024");

struct swift {
	u64 window;	/* in 1/1024 of a segment */
	u32 next;	/* sequence number that ends the round trip of the last decrease */
};

static void swift_init(struct sock *sk)
{
	struct swift *w = inet_csk_ca(sk);

	w->window = (u64)tcp_snd_cwnd(tcp_sk(sk)) * ONE;
	w->next = tcp_sk(sk)->snd_nxt;
}

static u32 swift_target(const struct swift *w)
{
	u32 root = int_sqrt64(w->window * ONE);	/* sqrt(window), in 1/1024 */

	return target_us + scaling_us * ONE / max_t(u32, root, ONE);
}

static void swift_shrink(struct sock *sk, struct swift *w, u32 by)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (before(tp->snd_una, w->next))
		return;
	w->window -= w->window * min_t(u32, by, ONE / 2) / ONE;
	w->next = tp->snd_nxt;
}

static void swift_control(CA_CONG_CONTROL_ARGS)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct swift *w = inet_csk_ca(sk);
	u32 target = swift_target(w);

	if (rs->losses > 0)
		swift_shrink(sk, w, ONE / 2);
	else if (rs->rtt_us > target)
		swift_shrink(sk, w, div_u64((u64)beta * (rs->rtt_us - target), rs->rtt_us));
	else if (rs->rtt_us > 0 && rs->acked_sacked > 0 && tcp_is_cwnd_limited(sk))
		w->window += div64_u64((u64)ai * rs->acked_sacked * ONE * ONE, w->window);
	w->window = clamp_t(u64, w->window, 2 * ONE, (u64)tp->snd_cwnd_clamp * ONE);
	tcp_snd_cwnd_set(tp, w->window / ONE);
}

/* After a timeout: one segment, and growth from there. */
static u32 swift_ssthresh(struct sock *sk)
{
	struct swift *w = inet_csk_ca(sk);

	if (inet_csk(sk)->icsk_ca_state == TCP_CA_Loss)
		w->window = 2 * ONE;
	return max(tcp_snd_cwnd(tcp_sk(sk)) >> 1, 2U);
}

static struct tcp_congestion_ops swift = {
	.init = swift_init,
	.cong_control = swift_control,
	.ssthresh = swift_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "swift",
};

static int __init swift_register(void)
{
	BUILD_BUG_ON(sizeof(struct swift) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&swift);
}

static void __exit swift_unregister(void)
{
	tcp_unregister_congestion_control(&swift);
}

module_init(swift_register);
module_exit(swift_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A window that follows a target delay, after Swift");
