/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DCQCN on a TCP socket, for modules and for eBPF. The receiver is DCTCP's,
 * which echoes every mark; the sender makes CNPs out of the echo, spaced as a
 * RoCE receiver spaces them. The rate is enforced by pacing. A RoCE network
 * does not lose packets, since PFC stops the sender before a buffer is full:
 * what stands for it here is a window of DCQCN_WINDOW_US at R_C beyond the
 * least RTT, and a loss counts as a CNP.
 */
#ifndef MLTCP_DCQCN_TCP_H
#define MLTCP_DCQCN_TCP_H

#include "dcqcn.h"
#include "dctcp.h"

#define DCQCN_WINDOW_US	100
#define DCQCN_WINDOW_MIN	10	/* segments */
#define DCQCN_HEADERS	66	/* Ethernet, IPv4, TCP with timestamps */

struct dcqcn_flow {
	struct dcqcn d;
	struct ce_state ce;
	u32 delivered_ce;
	u32 lost;
};

/*
 * Line rates count whole frames, but TCP paces their payload. The rate is also
 * 1/256 lower: TCP sometimes sends bursts, which an adapter cannot. At the full
 * line rate, a queue made by a single flow would never drain.
 */
static inline void dcqcn_apply(struct sock *sk, const struct dcqcn *d)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 mss = max(tp->mss_cache, 1U);
	u64 wire = (d->current_rate - (d->current_rate >> 8)) >> 3;
	u64 rate = div64_u64(wire * mss, mss + DCQCN_HEADERS);
	u64 span_us = min(tcp_min_rtt(tp), 1000000U) + DCQCN_WINDOW_US;
	u64 window = div64_u64(rate * span_us, 1000000 * mss) + DCQCN_WINDOW_MIN;

	WRITE_ONCE(sk->sk_pacing_rate, rate);
	if (window > tp->snd_cwnd_clamp)
		window = tp->snd_cwnd_clamp;
	tcp_snd_cwnd_set(tp, window);
}

/* False without ECN: the caller falls back to Reno. */
static inline bool dcqcn_start(struct sock *sk, struct dcqcn_flow *f,
			       const struct dcqcn_params *p)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	dcqcn_init(&f->d, p, tp->tcp_mstamp, tp->bytes_sent);
	f->delivered_ce = tp->delivered_ce;
	f->lost = tp->lost;
	if (!ce_state_init(sk, &f->ce))
		return false;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	dcqcn_apply(sk, &f->d);
	return true;
}

/* For cong_control, and for CA_EVENT_TX_START: a pause is no standstill. */
static inline void dcqcn_update(struct sock *sk, struct dcqcn_flow *f,
				const struct dcqcn_params *p, u32 r_ai)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 now = tp->tcp_mstamp;

	dcqcn_advance(&f->d, p, now, tp->bytes_sent, r_ai);
	if (tp->delivered_ce != f->delivered_ce || tp->lost != f->lost)
		dcqcn_cnp(&f->d, p, now, tp->bytes_sent);
	f->delivered_ce = tp->delivered_ce;
	f->lost = tp->lost;
	dcqcn_apply(sk, &f->d);
}

#endif /* MLTCP_DCQCN_TCP_H */
