// SPDX-License-Identifier: GPL-2.0-only
/* MLTCP-DCQCN: DCQCN, with its additive increase scaled by F (see mltcp.h). */
#include <linux/types.h>
#include "dcqcn.h"

/* DCQCN's of the paper as recalled. */
#define MLTCP_SLOPE	1093
#define MLTCP_INTERCEPT	273
/* It has a rate. */
#define MLTCP_WINDOW_PARAMETERS(P)
#include "mltcp.h"

#define CC_NAME			"mltcp_dcqcn"
#define CC_PARAMETERS(P)	DCQCN_PARAMETERS(P) MLTCP_PARAMETERS(P)
struct cc_params {
	struct dcqcn_params dcqcn;
	struct mltcp_params mltcp;
};

#include "mltcp_module.h"
#include "dcqcn_tcp.h"

struct mltcp_dcqcn {
	struct dcqcn_flow base;
	struct mltcp m;
};

static struct tcp_congestion_ops mltcp_dcqcn_reno;

static void mltcp_dcqcn_sk_init(struct sock *sk)
{
	const struct dcqcn_params p = cc_params(sk).dcqcn;
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	mltcp_ca_init(sk, &ca->m);
	if (!dcqcn_start(sk, &ca->base, &p)) {
		WRITE_ONCE(inet_csk(sk)->icsk_ca_ops, &mltcp_dcqcn_reno);
		INET_ECN_dontxmit(sk);
	}
}

static void mltcp_dcqcn_release(struct sock *sk)
{
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	mltcp_ca_release(sk, &ca->m);
}

static void mltcp_dcqcn_sk_update(struct sock *sk)
{
	const struct dcqcn_params p = cc_params(sk).dcqcn;
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);
	u64 f = mltcp_ca_factor(sk, &ca->m);

	dcqcn_update(sk, &ca->base, &p, (p.r_ai * f) >> 10);
}

static void mltcp_dcqcn_cong_control(CA_CONG_CONTROL_ARGS)
{
	mltcp_dcqcn_sk_update(sk);
}

static void mltcp_dcqcn_tx_start(struct sock *sk)
{
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	mltcp_dcqcn_sk_update(sk);
	mltcp_ca_tx_start(sk, &ca->m);
}

static void mltcp_dcqcn_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	ce_state_event(sk, &ca->base.ce, event);
	if (event == CA_EVENT_TX_START)
		mltcp_dcqcn_tx_start(sk);
}

static size_t mltcp_dcqcn_get_info(struct sock *sk, u32 ext, int *attr,
				   union tcp_cc_info *info)
{
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	return mltcp_ca_info(sk, &ca->m, ext, attr, info);
}

/* Neither means anything to a rate; TCP asks all the same. */
static u32 mltcp_dcqcn_window(struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

static struct tcp_congestion_ops mltcp_dcqcn __read_mostly = {
	.init = mltcp_dcqcn_sk_init,
	.release = mltcp_dcqcn_release,
	.cong_control = mltcp_dcqcn_cong_control,
	.ssthresh = mltcp_dcqcn_window,
	.undo_cwnd = mltcp_dcqcn_window,
	.cwnd_event = mltcp_dcqcn_cwnd_event,
	CA_OP_TX_START(mltcp_dcqcn_tx_start)
	.get_info = mltcp_dcqcn_get_info,
	.flags = TCP_CONG_NEEDS_ECN,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

/* Without ECN. */
static struct tcp_congestion_ops mltcp_dcqcn_reno __read_mostly = {
	.ssthresh = tcp_reno_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "mltcp_dcqcn-rn",
};

CC_MODULE(mltcp_dcqcn, struct mltcp_dcqcn, "MLTCP-DCQCN: additive increase scaled by the share of an iteration sent");
