// SPDX-License-Identifier: GPL-2.0-only
/* DCQCN as a congestion control of TCP (see dcqcn.h and dcqcn_tcp.h). */
#include <linux/types.h>
#include "dcqcn.h"

#define CC_NAME			"dcqcn"
#define CC_PARAMETERS(P)	DCQCN_PARAMETERS(P)
struct cc_params {
	struct dcqcn_params dcqcn;
};

#include "cc_module.h"
#include "dcqcn_tcp.h"

static struct tcp_congestion_ops dcqcn_reno;

static void dcqcn_sk_init(struct sock *sk)
{
	const struct dcqcn_params p = cc_params(sk).dcqcn;
	struct dcqcn_flow *ca = inet_csk_ca(sk);

	if (!dcqcn_start(sk, ca, &p)) {
		WRITE_ONCE(inet_csk(sk)->icsk_ca_ops, &dcqcn_reno);
		INET_ECN_dontxmit(sk);
	}
}

static void dcqcn_sk_update(struct sock *sk)
{
	const struct dcqcn_params p = cc_params(sk).dcqcn;
	struct dcqcn_flow *ca = inet_csk_ca(sk);

	dcqcn_update(sk, ca, &p, p.r_ai);
}

static void dcqcn_cong_control(CA_CONG_CONTROL_ARGS)
{
	dcqcn_sk_update(sk);
}

static void dcqcn_tx_start(struct sock *sk)
{
	dcqcn_sk_update(sk);
}

static void dcqcn_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct dcqcn_flow *ca = inet_csk_ca(sk);

	ce_state_event(sk, &ca->ce, event);
	if (event == CA_EVENT_TX_START)
		dcqcn_tx_start(sk);
}

/* Neither means anything to a rate; TCP asks all the same. */
static u32 dcqcn_window(struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

static struct tcp_congestion_ops dcqcn __read_mostly = {
	.init = dcqcn_sk_init,
	.cong_control = dcqcn_cong_control,
	.ssthresh = dcqcn_window,
	.undo_cwnd = dcqcn_window,
	.cwnd_event = dcqcn_cwnd_event,
	CA_OP_TX_START(dcqcn_tx_start)
	.flags = TCP_CONG_NEEDS_ECN,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

/* Without ECN. */
static struct tcp_congestion_ops dcqcn_reno __read_mostly = {
	.ssthresh = tcp_reno_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "dcqcn-reno",
};

CC_MODULE(dcqcn, struct dcqcn_flow, "DCQCN's reaction point as a congestion control of TCP");
