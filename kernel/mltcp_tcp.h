/* SPDX-License-Identifier: GPL-2.0-only */
/* The algorithm on a TCP socket, for modules and for eBPF. */
#ifndef MLTCP_TCP_H
#define MLTCP_TCP_H

#include "mltcp.h"

/* F of this socket now, in 1/1024. */
static inline u32 mltcp_sk_factor(const struct sock *sk, const struct mltcp *m,
				  const struct mltcp_params *p)
{
	return mltcp_factor(p, mltcp_ratio(m, tcp_sk(sk)->bytes_acked));
}

/*
 * @acked segments as its base's congestion avoidance is to see them: times F,
 * but for slow start, which stays as it is.
 */
static inline u32 mltcp_sk_scale(struct sock *sk, struct mltcp *m,
				 const struct mltcp_params *p, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (tcp_in_slow_start(tp))
		return acked;
	return mltcp_scale(m, p, tp->bytes_acked, acked);
}

/* For CA_EVENT_TX_START; true where an iteration begins. */
static inline bool mltcp_sk_tx_start(const struct sock *sk, struct mltcp *m,
				     const struct mltcp_params *p)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 gap_us = tp->tcp_mstamp - tp->delivered_mstamp;

	/*
	 * A retransmission after a timeout starts transmission, too, and so
	 * does every packet of a flow paced slowly, whose data was waiting.
	 */
	if (tp->packets_out || !tp->app_limited)
		return false;
	if (gap_us > 0xffffffff)
		gap_us = 0xffffffff;
	return mltcp_tx_start(m, p, mltcp_given(p, tp->notsent_lowat),
			      tp->bytes_acked, gap_us);
}

#endif /* MLTCP_TCP_H */
