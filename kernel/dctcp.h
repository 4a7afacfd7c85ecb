/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DCTCP as in Linux 6.12 (net/ipv4/tcp_dctcp.c, by Daniel Borkmann, Florian
 * Westphal and Glenn Judd; RFC 8257), without PLB, for modules and for eBPF.
 * The including file provides the kernel's names, ca_state(), ca_send_ack()
 * and ca_ecn_negotiated().
 */
#ifndef MLTCP_DCTCP_H
#define MLTCP_DCTCP_H

#define DCTCP_MAX_ALPHA	1024U
#define DCTCP_SHIFT_G	4	/* g = 1/2^4 */

/* What came with congestion experienced; the receiver's half of DCTCP. */
struct ce_state {
	u32 prior_rcv_nxt;
	u32 marked;	/* the last packet was */
};

struct dctcp {
	struct ce_state ce;
	u32 old_delivered;
	u32 old_delivered_ce;
	u32 alpha;
	u32 next_seq;
	u32 loss_cwnd;
};

static inline void ce_state_echo(struct sock *sk, u32 marked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (marked)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

/* Echo every mark, and no more: RFC 8257, section 3.2. */
static inline void ce_state_update(struct sock *sk, struct ce_state *ce,
				   u32 marked)
{
	struct inet_connection_sock *icsk = inet_csk(sk);

	if (ce->marked != marked) {
		/*
		 * A delayed ACK still reports the previous state;
		 * the new one is reported at once.
		 */
		if (icsk->icsk_ack.pending & ICSK_ACK_TIMER) {
			ce_state_echo(sk, ce->marked);
			ca_send_ack(sk, ce->prior_rcv_nxt);
		}
		icsk->icsk_ack.pending |= ICSK_ACK_NOW;
	}
	ce->prior_rcv_nxt = tcp_sk(sk)->rcv_nxt;
	ce->marked = marked;
	ce_state_echo(sk, marked);
}

/* For cwnd_event: the two events that concern the receiver. */
static inline void ce_state_event(struct sock *sk, struct ce_state *ce,
				  enum tcp_ca_event event)
{
	if (event == CA_EVENT_ECN_IS_CE || event == CA_EVENT_ECN_NO_CE)
		ce_state_update(sk, ce, event == CA_EVENT_ECN_IS_CE);
}

/* Whether DCTCP can work: without ECN the caller falls back to Reno. */
static inline bool ce_state_init(struct sock *sk, struct ce_state *ce)
{
	if (!ca_ecn_negotiated(tcp_sk(sk)) &&
	    sk->sk_state != TCP_LISTEN && sk->sk_state != TCP_CLOSE)
		return false;
	ce->prior_rcv_nxt = tcp_sk(sk)->rcv_nxt;
	ce->marked = 0;
	return true;
}

static inline void dctcp_reset(const struct tcp_sock *tp, struct dctcp *ca)
{
	ca->next_seq = tp->snd_nxt;
	ca->old_delivered = tp->delivered;
	ca->old_delivered_ce = tp->delivered_ce;
}

static inline bool dctcp_start(struct sock *sk, struct dctcp *ca)
{
	ca->alpha = DCTCP_MAX_ALPHA;
	ca->loss_cwnd = 0;
	dctcp_reset(tcp_sk(sk), ca);
	return ce_state_init(sk, &ca->ce);
}

static inline u32 dctcp_reduced(struct sock *sk, struct dctcp *ca)
{
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));

	ca->loss_cwnd = cwnd;
	return max(cwnd - ((cwnd * ca->alpha) >> 11U), 2U);
}

static inline void dctcp_update_alpha(struct sock *sk, struct dctcp *ca)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 alpha = ca->alpha;
	u32 delivered, delivered_ce;

	if (before(tp->snd_una, ca->next_seq))
		return;
	delivered = tp->delivered - ca->old_delivered;
	delivered_ce = tp->delivered_ce - ca->old_delivered_ce;

	/* alpha = (1 - g) * alpha + g * F */
	alpha -= alpha >> DCTCP_SHIFT_G ? alpha >> DCTCP_SHIFT_G : alpha;
	if (delivered_ce) {
		delivered_ce <<= (10 - DCTCP_SHIFT_G);
		delivered_ce /= max(1U, delivered);
		alpha = min(alpha + delivered_ce, DCTCP_MAX_ALPHA);
	}
	/* Observers may read it at any time. */
	WRITE_ONCE(ca->alpha, alpha);
	dctcp_reset(tp, ca);
}

/* A loss halves the window, as in Reno. */
static inline void dctcp_react_to_loss(struct sock *sk, struct dctcp *ca)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	ca->loss_cwnd = cwnd;
	WRITE_ONCE(tp->snd_ssthresh, max(cwnd >> 1U, 2U));
}

/*
 * For set_state. A timeout comes as CA_EVENT_LOSS: one reaction per RTT.
 * Returns true where there was one.
 */
static inline bool dctcp_new_state(struct sock *sk, struct dctcp *ca,
				   u8 new_state)
{
	if (new_state != TCP_CA_Recovery || new_state == ca_state(sk))
		return false;
	dctcp_react_to_loss(sk, ca);
	return true;
}

/* For cwnd_event; true where it was a loss. */
static inline bool dctcp_event(struct sock *sk, struct dctcp *ca,
			       enum tcp_ca_event event)
{
	ce_state_event(sk, &ca->ce, event);
	if (event != CA_EVENT_LOSS)
		return false;
	dctcp_react_to_loss(sk, ca);
	return true;
}

static inline u32 dctcp_undo(struct sock *sk, const struct dctcp *ca)
{
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));

	return max(cwnd, ca->loss_cwnd);
}

#endif /* MLTCP_DCTCP_H */
