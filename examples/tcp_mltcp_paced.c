// SPDX-License-Identifier: GPL-2.0-only
/*
 * MLTCP-Reno whose window may be a fraction of a segment: below two segments the flow is paced at window / RTT.
 * Linux's least window is two segments. With less marking threshold than that for each flow, all flows have it, and F
 * changes nothing.
 *
 *	mltcp run --on uml --system reno ./tcp_mltcp_paced.c --jobs 8 --channels 4 --ecn 32p
 */
/* testbed: base=reno learns */
#include <linux/types.h>
#include "mltcp.h"

#define CC_NAME			"mltcp_paced"
#define CC_PARAMETERS(P)	MLTCP_PARAMETERS(P)
struct cc_params {
	struct mltcp_params mltcp;
};

#include "mltcp_module.h"

#define ONE	1024	/* 1.0 of windows */
#define LEAST	64	/* window: a sixteenth of a segment */

struct paced {
	struct mltcp m;
	u64 window;	/* in 1/1024 of a segment */
};

/* Whole segments; below two, two at the window's rate, so that an ACK is not delayed for long. */
static void paced_apply(struct sock *sk, const struct paced *w)
{
	struct tcp_sock *tp = tcp_sk(sk);
	unsigned long rate = ~0UL;

	if (w->window < 2 * ONE && tp->srtt_us)	/* eighths of a microsecond */
		rate = max_t(u64, 1000, div_u64(tp->mss_cache * w->window * (USEC_PER_SEC / ONE) * 8, tp->srtt_us));
	WRITE_ONCE(sk->sk_pacing_rate, rate);
	tcp_snd_cwnd_set(tp, clamp_t(u64, w->window / ONE, 2, tp->snd_cwnd_clamp));
}

static void paced_init(struct sock *sk)
{
	struct paced *w = inet_csk_ca(sk);

	mltcp_ca_init(sk, &w->m);
	w->window = (u64)tcp_snd_cwnd(tcp_sk(sk)) * ONE;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	paced_apply(sk, w);
}

static void paced_release(struct sock *sk)
{
	struct paced *w = inet_csk_ca(sk);

	mltcp_ca_release(sk, &w->m);
}

/* Growth as Reno's times F: an ACK of a window below one segment adds F segments. */
static void paced_control(CA_CONG_CONTROL_ARGS)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct paced *w = inet_csk_ca(sk);
	u64 acked = max_t(s64, rs->acked_sacked, 0) * ONE;

	if (inet_csk(sk)->icsk_ca_state < TCP_CA_CWR && (w->window < 2 * ONE || tcp_is_cwnd_limited(sk))) {
		if (!tcp_in_slow_start(tp))
			acked = div64_u64((u64)mltcp_ca_scale(sk, &w->m, acked) * ONE, max_t(u64, w->window, ONE));
		w->window = min(w->window + acked, (u64)tp->snd_cwnd_clamp * ONE);
	}
	paced_apply(sk, w);
}

/* TCP asks once for a window with marks or losses. */
static u32 paced_ssthresh(struct sock *sk)
{
	struct paced *w = inet_csk_ca(sk);

	w->window = max_t(u64, w->window / 2, LEAST);
	return max_t(u64, w->window / ONE, 2);
}

static void paced_tx_start(struct sock *sk)
{
	struct paced *w = inet_csk_ca(sk);
	u32 before = tcp_snd_cwnd(tcp_sk(sk)), after;

	mltcp_ca_tx_start(sk, &w->m);
	after = tcp_snd_cwnd(tcp_sk(sk));
	if (after < before)
		w->window = (u64)after * ONE;
	paced_apply(sk, w);
}

static void paced_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		paced_tx_start(sk);
}

static u32 paced_min_tso_segs(struct sock *sk)
{
	return 1;
}

static size_t paced_get_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)
{
	struct paced *w = inet_csk_ca(sk);

	return mltcp_ca_info(sk, &w->m, ext, attr, info);
}

static struct tcp_congestion_ops mltcp_paced __read_mostly = {
	.init = paced_init,
	.release = paced_release,
	.ssthresh = paced_ssthresh,
	.cong_control = paced_control,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cwnd_event = paced_cwnd_event,
	CA_OP_TX_START(paced_tx_start)
	.min_tso_segs = paced_min_tso_segs,
	.get_info = paced_get_info,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

CC_MODULE(mltcp_paced, struct paced, "MLTCP-Reno with windows below two segments");
