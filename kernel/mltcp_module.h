/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every MLTCP congestion control as a module shares: its parameters, and
 * the state of a flow for whoever observes (sock_diag).
 */
#ifndef MLTCP_MODULE_H
#define MLTCP_MODULE_H

#include <linux/inet_diag.h>
#include <linux/module.h>
#include <net/tcp.h>

#include "mltcp.h"

/* Fractions in 1/1024. Reno and CUBIC defaults of the paper as recalled. */
static struct mltcp_params mltcp_params __read_mostly = {
	.slope = 1792,
	.intercept = 256,
	.gap_factor = 512,
	.first_gap_us = 1000,
};

module_param_named(slope, mltcp_params.slope, int, 0444);
MODULE_PARM_DESC(slope, "slope of F, in 1/1024 (1792)");
module_param_named(intercept, mltcp_params.intercept, int, 0444);
MODULE_PARM_DESC(intercept, "intercept of F, in 1/1024 (256)");
module_param_named(gap_factor, mltcp_params.gap_factor, uint, 0444);
MODULE_PARM_DESC(gap_factor, "share of the longest recent gap that ends an iteration, in 1/1024 (512)");
module_param_named(first_gap_us, mltcp_params.first_gap_us, uint, 0444);
MODULE_PARM_DESC(first_gap_us, "shortest gap that can end an iteration, in us (1000)");
module_param_named(total_bytes, mltcp_params.total_bytes, ullong, 0444);
MODULE_PARM_DESC(total_bytes, "bytes one flow sends per iteration; 0: learn it");

/*
 * CA_EVENT_TX_START comes with every other event, or through an operation of
 * its own: MLTCP_ON_TX_START(f) makes f the right one of struct
 * tcp_congestion_ops.
 */
#ifdef MLTCP_TX_START_OP
#define MLTCP_TX_START_ARGS	struct sock *sk
#define MLTCP_IS_TX_START	true
#define MLTCP_ON_TX_START(f)	.cwnd_event_tx_start = f
#else
#define MLTCP_TX_START_ARGS	struct sock *sk, enum tcp_ca_event event
#define MLTCP_IS_TX_START	(event == CA_EVENT_TX_START)
#define MLTCP_ON_TX_START(f)	.cwnd_event = f
#endif

/* The first transmission with nothing outstanding. */
static inline void mltcp_module_tx_start(const struct sock *sk, struct mltcp *m)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 gap_us = tp->tcp_mstamp - tp->delivered_mstamp;

	/* A retransmission after a timeout starts transmission, too. */
	if (tp->packets_out)
		return;
	mltcp_tx_start(m, &mltcp_params, tp->bytes_acked,
		       min_t(u64, gap_us, U32_MAX));
}

/*
 * sock_diag has no attribute for us. Vegas' says "not enabled" in its first
 * word, so that ss(8) ignores the rest: iterations, F, r (both in 1/1024).
 */
static inline size_t mltcp_module_info(const struct sock *sk, const struct mltcp *m, u32 ext,
				       int *attr, union tcp_cc_info *info)
{
	s32 ratio = mltcp_ratio(m, tcp_sk(sk)->bytes_acked);

	if (!(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	info->vegas.tcpv_enabled = 0;
	info->vegas.tcpv_rttcnt = m->iterations;
	info->vegas.tcpv_rtt = mltcp_factor(&mltcp_params, ratio);
	info->vegas.tcpv_minrtt = ratio;
	*attr = INET_DIAG_VEGASINFO;
	return sizeof(info->vegas);
}

#endif /* MLTCP_MODULE_H */
