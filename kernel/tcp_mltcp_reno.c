// SPDX-License-Identifier: GPL-2.0-only
/* MLTCP-Reno: Reno, with its additive increase scaled by F (see mltcp.h). */
#include <linux/types.h>
#include "mltcp.h"

#define CC_NAME			"mltcp_reno"
#define CC_PARAMETERS(P)	MLTCP_PARAMETERS(P)
struct cc_params {
	struct mltcp_params mltcp;
};

#include "mltcp_module.h"

static void mltcp_reno_init(struct sock *sk)
{
	mltcp_ca_init(sk, inet_csk_ca(sk));
}

static void mltcp_reno_release(struct sock *sk)
{
	mltcp_ca_release(sk, inet_csk_ca(sk));
}

static void mltcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	acked = mltcp_ca_scale(sk, inet_csk_ca(sk), acked);
	tcp_reno_cong_avoid(sk, ack, acked);
}

static u32 mltcp_reno_ssthresh(struct sock *sk)
{
	return mltcp_ca_reduced(sk, inet_csk_ca(sk), tcp_reno_ssthresh(sk));
}

static void mltcp_reno_tx_start(struct sock *sk)
{
	mltcp_ca_tx_start(sk, inet_csk_ca(sk));
}

static void mltcp_reno_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		mltcp_reno_tx_start(sk);
}

static size_t mltcp_reno_get_info(struct sock *sk, u32 ext, int *attr,
				  union tcp_cc_info *info)
{
	return mltcp_ca_info(sk, inet_csk_ca(sk), ext, attr, info);
}

static struct tcp_congestion_ops mltcp_reno __read_mostly = {
	.init = mltcp_reno_init,
	.release = mltcp_reno_release,
	.ssthresh = mltcp_reno_ssthresh,
	.cong_avoid = mltcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cwnd_event = mltcp_reno_cwnd_event,
	CA_OP_TX_START(mltcp_reno_tx_start)
	.get_info = mltcp_reno_get_info,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

CC_MODULE(mltcp_reno, struct mltcp, "MLTCP-Reno: additive increase scaled by the share of an iteration sent");
