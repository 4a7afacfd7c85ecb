/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The algorithm on a TCP socket, for modules and for eBPF. The including file
 * provides mltcp_job_ratio(). It returns true, and the r of all the sockets that
 * have this socket's mark, if it has one and they share their ratio.
 */
#ifndef MLTCP_TCP_H
#define MLTCP_TCP_H

#include "mltcp.h"

/* r of this socket, or of its job, in 1/1024; -1 while unknown. */
static inline s32 mltcp_sk_ratio(const struct sock *sk, const struct mltcp *m,
				 const struct mltcp_params *p)
{
	s32 ratio;

	if (p->share && mltcp_job_ratio(sk, p, &ratio))
		return ratio;
	return mltcp_ratio(m, p, tcp_sk(sk)->bytes_acked);
}

/* F of this socket now, in 1/1024. */
static inline u32 mltcp_sk_factor(const struct sock *sk, const struct mltcp *m,
				  const struct mltcp_params *p)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 f = mltcp_factor(p, mltcp_sk_ratio(sk, m, p));

	/*
	 * A small window loses its last packets, and waits for a timeout; not
	 * where queues mark: there small windows are what many flows have.
	 */
	if (f < MLTCP_ONE && tcp_snd_cwnd(tp) < p->floor_cwnd && !tp->delivered_ce)
		return MLTCP_ONE;
	return f;
}

/*
 * Whether more than half of what is in flight waits in this host: a larger
 * window would wait there, too. What waits is counted with its overhead, so
 * that it is compared with what all data not yet ACKed takes.
 */
static inline bool mltcp_sk_host_limited(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 waiting = sk_wmem_alloc_get(sk);

	return 2 * waiting * (tp->write_seq - tp->snd_una) >
	       (u64)sk->sk_wmem_queued * (tp->snd_nxt - tp->snd_una);
}

/*
 * @acked segments for the base's congestion avoidance: times F, except in slow
 * start, which is unchanged; none if the window is not to grow.
 */
static inline u32 mltcp_sk_scale(struct sock *sk, struct mltcp *m,
				 const struct mltcp_params *p, u32 acked)
{
	if (p->host_limit && !mltcp_neutral(p) && mltcp_sk_host_limited(sk))
		return 0;
	if (tcp_in_slow_start(tcp_sk(sk)) || p->apply == MLTCP_DECREASE)
		return acked;
	return mltcp_scale(m, mltcp_sk_factor(sk, m, p), acked);
}

/* What a loss or mark leaves of the window, where the base would @reduced. */
static inline u32 mltcp_sk_reduced(const struct sock *sk, const struct mltcp *m,
				   const struct mltcp_params *p, u32 reduced)
{
	if (p->apply == MLTCP_INCREASE)
		return reduced;
	return mltcp_reduced(mltcp_sk_factor(sk, m, p),
			     tcp_snd_cwnd(tcp_sk(sk)), reduced);
}

/* An iteration begins: what becomes of the window, once r is known. */
static inline void mltcp_sk_restart(struct sock *sk, const struct mltcp *m,
				    const struct mltcp_params *p)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (p->restart == MLTCP_KEEP || mltcp_neutral(p) ||
	    mltcp_sk_ratio(sk, m, p) < 0)
		return;
	WRITE_ONCE(tp->snd_ssthresh,
		   mltcp_threshold(p, cwnd, tp->snd_ssthresh));
	tcp_snd_cwnd_set(tp, mltcp_window(p, cwnd, tp->max_packets_out));
	tp->snd_cwnd_cnt = 0;
}

/* For CA_EVENT_TX_START; true where an iteration begins. */
static inline bool mltcp_sk_tx_start(struct sock *sk, struct mltcp *m,
				     const struct mltcp_params *p)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 gap_us = tp->tcp_mstamp - tp->delivered_mstamp;

	/*
	 * A retransmission after a timeout starts transmission, too. So does
	 * every packet of a flow paced slowly, although its data was waiting.
	 */
	if (tp->packets_out || !tp->app_limited)
		return false;
	if (gap_us > 0xffffffff)
		gap_us = 0xffffffff;
	if (!mltcp_tx_start(m, p, mltcp_given(p, tp->notsent_lowat),
			    tp->bytes_acked, gap_us))
		return false;
	mltcp_sk_restart(sk, m, p);
	return true;
}

#endif /* MLTCP_TCP_H */
