// SPDX-License-Identifier: GPL-2.0-only
/* MLTCP-DCTCP: DCTCP, with its additive increase scaled by F (see mltcp.h). */
#include <linux/types.h>
#include "mltcp.h"

#define CC_NAME			"mltcp_dctcp"
#define CC_PARAMETERS(P)	MLTCP_PARAMETERS(P)
struct cc_params {
	struct mltcp_params mltcp;
};

#include "mltcp_module.h"
#include "dctcp.h"

struct mltcp_dctcp {
	struct dctcp base;
	struct mltcp m;
};

static struct tcp_congestion_ops mltcp_dctcp_reno;

static void mltcp_dctcp_init(struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	mltcp_ca_init(sk, &ca->m);
	if (!dctcp_start(sk, &ca->base)) {
		WRITE_ONCE(inet_csk(sk)->icsk_ca_ops, &mltcp_dctcp_reno);
		INET_ECN_dontxmit(sk);
	}
}

static void mltcp_dctcp_release(struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	mltcp_ca_release(sk, &ca->m);
}

static void mltcp_dctcp_in_ack_event(struct sock *sk, u32 flags)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	dctcp_update_alpha(sk, &ca->base);
}

static u32 mltcp_dctcp_ssthresh(struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	return mltcp_ca_reduced(sk, &ca->m, dctcp_reduced(sk, &ca->base));
}

static void mltcp_dctcp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	acked = mltcp_ca_scale(sk, &ca->m, acked);
	tcp_reno_cong_avoid(sk, ack, acked);
}

static void mltcp_dctcp_set_state(struct sock *sk, u8 new_state)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	if (dctcp_new_state(sk, &ca->base, new_state))
		mltcp_ca_lost(sk, &ca->m);
}

static void mltcp_dctcp_tx_start(struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	mltcp_ca_tx_start(sk, &ca->m);
}

static void mltcp_dctcp_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	if (dctcp_event(sk, &ca->base, event))
		mltcp_ca_lost(sk, &ca->m);
	if (event == CA_EVENT_TX_START)
		mltcp_dctcp_tx_start(sk);
}

static u32 mltcp_dctcp_undo_cwnd(struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	return dctcp_undo(sk, &ca->base);
}

static size_t mltcp_dctcp_get_info(struct sock *sk, u32 ext, int *attr,
				   union tcp_cc_info *info)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	return mltcp_ca_info(sk, &ca->m, ext, attr, info);
}

static struct tcp_congestion_ops mltcp_dctcp __read_mostly = {
	.init = mltcp_dctcp_init,
	.release = mltcp_dctcp_release,
	.in_ack_event = mltcp_dctcp_in_ack_event,
	.ssthresh = mltcp_dctcp_ssthresh,
	.cong_avoid = mltcp_dctcp_cong_avoid,
	.set_state = mltcp_dctcp_set_state,
	.cwnd_event = mltcp_dctcp_cwnd_event,
	CA_OP_TX_START(mltcp_dctcp_tx_start)
	.undo_cwnd = mltcp_dctcp_undo_cwnd,
	.get_info = mltcp_dctcp_get_info,
	.flags = TCP_CONG_NEEDS_ECN,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

/* Without ECN. */
static struct tcp_congestion_ops mltcp_dctcp_reno __read_mostly = {
	.ssthresh = tcp_reno_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE,
	.name = "mltcp_dctcp-rn",
};

CC_MODULE(mltcp_dctcp, struct mltcp_dctcp, "MLTCP-DCTCP: additive increase scaled by the share of an iteration sent");
