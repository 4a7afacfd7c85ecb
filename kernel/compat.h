/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between the kernels the modules are built for (6.1 to 7.x).
 * Kbuild searches their headers and defines the HAVE_... below, because a
 * version number does not show what a distribution has backported.
 */
#ifndef MLTCP_COMPAT_H
#define MLTCP_COMPAT_H

#include <net/net_namespace.h>
#include <net/tcp.h>

/*
 * CA_EVENT_TX_START arrives with every other event, or only through a separate
 * operation, which CA_OP_TX_START() sets where there is one.
 */
#ifdef HAVE_CWND_EVENT_TX_START
#define CA_OP_TX_START(f)	.cwnd_event_tx_start = (f),
#else
#define CA_OP_TX_START(f)
#endif

#ifdef HAVE_CONG_CONTROL_ACK
#define CA_CONG_CONTROL_ARGS \
	struct sock *sk, u32 ack, int flag, const struct rate_sample *rs
#else
#define CA_CONG_CONTROL_ARGS \
	struct sock *sk, const struct rate_sample *rs
#endif

#ifdef HAVE_CONST_CTL_TABLE
#define CA_PROC_HANDLER_ARGS \
	const struct ctl_table *table, int write, void *buffer, \
	size_t *length, loff_t *position
#else
#define CA_PROC_HANDLER_ARGS \
	struct ctl_table *table, int write, void *buffer, \
	size_t *length, loff_t *position
#endif

/* TCP_CA_Open and so on. */
static inline u8 ca_state(const struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_state;
}

/* A separate ACK, for the data received up to @rcv_nxt. */
static inline void ca_send_ack(struct sock *sk, u32 rcv_nxt)
{
#ifdef HAVE_SEND_ACK_FLAGS
	__tcp_send_ack(sk, rcv_nxt, 0);
#else
	__tcp_send_ack(sk, rcv_nxt);
#endif
}

/* Whether both ends have agreed on ECN. */
static inline bool ca_ecn_negotiated(const struct tcp_sock *tp)
{
#ifdef HAVE_TCP_ECN_MODE
	return tcp_ecn_mode_any(tp);
#else
	return tp->ecn_flags & TCP_ECN_OK;
#endif
}

/* @table has @entries, and an empty one for the kernels that look for it. */
static inline struct ctl_table_header *
ca_register_sysctl(struct net *net, const char *path, struct ctl_table *table,
		   size_t entries)
{
#ifdef HAVE_REGISTER_NET_SYSCTL_SZ
	return register_net_sysctl_sz(net, path, table, entries);
#else
	return register_net_sysctl(net, path, table);
#endif
}

#endif /* MLTCP_COMPAT_H */
