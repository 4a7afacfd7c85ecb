// SPDX-License-Identifier: GPL-2.0-only
/*
 * Like TIMELY (Mittal et al., SIGCOMM 2015): a rate that follows the gradient of the round trip.
 *
 * Once a round trip the rate changes. Below low_us it grows by step; above high_us it shrinks by beta (1 - high / rtt).
 * Between them it depends on the gradient. If the round trip does not grow, the rate grows by step, or by five steps
 * after five such round trips. Otherwise it shrinks by beta times the gradient. Unlike in the paper, round trips and
 * pacing are those of TCP.
 *
 *	mltcp run --on uml --system reno ./tcp_timely.c:low_us=150,high_us=500 --delay 50us --jobs 2
 */
/* testbed: paced may_leave_idle */
#include <linux/module.h>
#include <net/tcp.h>
#include "compat.h"

#define ONE	1024	/* 1.0 */
#define MOST	5	/* steps at once */

static int low_us = 150;
module_param(low_us, int, 0444);
MODULE_PARM_DESC(low_us, "round trip below which the rate always grows, in us");
static int high_us = 500;
module_param(high_us, int, 0444);
MODULE_PARM_DESC(high_us, "round trip above which the rate always shrinks, in us");
static int step_mbps = 10;
module_param(step_mbps, int, 0444);
MODULE_PARM_DESC(step_mbps, "step of the rate's increase, in Mbit/s");
static int start_mbps = 100;
module_param(start_mbps, int, 0444);
MODULE_PARM_DESC(start_mbps, "rate at the start, in Mbit/s");
static int beta = 819;
module_param(beta, int, 0444);
MODULE_PARM_DESC(beta, "strength of the decrease, in 1/1024");
static int weight = 896;
module_param(weight, int, 0444);
MODULE_PARM_DESC(weight, "of the past in the averaged difference of round trips, in 1/1024");

struct timely {
	u64 rate;	/* bytes per second */
	s32 change;	/* averaged difference of round trips, in 1/1024 us */
	u32 last_us;	/* previous round trip; 0: none */
	u32 next;	/* sequence number that ends this round trip */
	u32 calm;	/* round trips in a row that did not grow */
};

static void timely_init(struct sock *sk)
{
	struct timely *t = inet_csk_ca(sk);

	*t = (struct timely){ .rate = start_mbps * 125000ULL, .next = tcp_sk(sk)->snd_nxt };
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static void timely_shrink(struct timely *t, u32 by)
{
	t->calm = 0;
	t->rate -= t->rate * min_t(u32, by, ONE / 2) / ONE;
}

static void timely_update(struct sock *sk, struct timely *t, u32 rtt_us)
{
	u32 least = max_t(u32, tcp_min_rtt(tcp_sk(sk)), 1);
	u64 step = step_mbps * 125000ULL;

	if (t->last_us)
		t->change = (weight * t->change + (ONE - weight) * (s32)(rtt_us - t->last_us)) / ONE;
	t->last_us = rtt_us;
	if (rtt_us < low_us) {
		t->rate += step;
	} else if (rtt_us > high_us) {
		timely_shrink(t, beta * (rtt_us - high_us) / rtt_us);
	} else if (t->change <= 0) {
		t->calm++;
		t->rate += t->calm >= MOST ? MOST * step : step;
	} else {
		timely_shrink(t, div_u64((u64)beta * t->change, least * ONE));
	}
	t->rate = max(t->rate, step);
}

static void timely_control(CA_CONG_CONTROL_ARGS)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct timely *t = inet_csk_ca(sk);
	u64 window;

	if (rs->rtt_us > 0 && !before(tp->snd_una, t->next)) {
		timely_update(sk, t, rs->rtt_us);
		t->next = tp->snd_nxt;
	}
	/* Twice of what is in flight at this rate: the rate decides, not the window. */
	window = div_u64(2 * t->rate * (tp->srtt_us >> 3), USEC_PER_SEC * max(tp->mss_cache, 1U));
	tcp_snd_cwnd_set(tp, clamp_t(u64, window, 4, tp->snd_cwnd_clamp));
	WRITE_ONCE(sk->sk_pacing_rate, t->rate);
}

static struct tcp_congestion_ops timely = {
	.init = timely_init,
	.cong_control = timely_control,
	.ssthresh = tcp_reno_ssthresh,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "timely",
};

static int __init timely_register(void)
{
	BUILD_BUG_ON(sizeof(struct timely) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&timely);
}

static void __exit timely_unregister(void)
{
	tcp_unregister_congestion_control(&timely);
}

module_init(timely_register);
module_exit(timely_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A rate that follows the gradient of the round trip, after TIMELY");
