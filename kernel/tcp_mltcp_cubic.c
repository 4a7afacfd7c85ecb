// SPDX-License-Identifier: GPL-2.0-only
/*
 * MLTCP-CUBIC: CUBIC, with its increment per ACK scaled by F (see mltcp.h).
 *
 * CUBIC turns "how far am I below the curve" into a count of ACKed segments per
 * segment of growth. Counting every ACKed segment F times scales the increment
 * wherever the window is: on the concave and the convex part of the cubic, and
 * in the TCP-friendly region, whose estimate of Reno's window grows by the same
 * count, so that it becomes the estimate of MLTCP-Reno's. Scaling the cubic
 * term instead would lower the window where the term is negative, below W_max.
 * Slow start, HyStart and the reaction to loss are CUBIC's.
 */
#include <linux/types.h>
#include "cubic.h"
#include "mltcp.h"

#define CC_NAME			"mltcp_cubic"
#define CC_PARAMETERS(P)	MLTCP_PARAMETERS(P)
struct cc_params {
	struct mltcp_params mltcp;
};

#include "mltcp_module.h"

struct mltcp_cubic {
	struct bictcp base;	/* where CUBIC expects it */
	struct mltcp m;
};

static void mltcp_cubic_init(struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	cubictcp_init(sk);
	mltcp_init(&ca->m, &cc_params_of(sk)->mltcp);
}

static void mltcp_cubic_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	acked = mltcp_sk_scale(sk, &ca->m, &cc_params_of(sk)->mltcp, acked);
	cubictcp_cong_avoid(sk, ack, acked);
}

static void mltcp_cubic_tx_start(struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	cubictcp_tx_start(sk);
	mltcp_sk_tx_start(sk, &ca->m, &cc_params_of(sk)->mltcp);
}

static void mltcp_cubic_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		mltcp_cubic_tx_start(sk);
}

static size_t mltcp_cubic_get_info(struct sock *sk, u32 ext, int *attr,
				   union tcp_cc_info *info)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	return mltcp_module_info(sk, &ca->m, ext, attr, info);
}

static struct tcp_congestion_ops mltcp_cubic __read_mostly = {
	.init = mltcp_cubic_init,
	.ssthresh = cubictcp_recalc_ssthresh,
	.cong_avoid = mltcp_cubic_cong_avoid,
	.set_state = cubictcp_state,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cwnd_event = mltcp_cubic_cwnd_event,
	CA_OP_TX_START(mltcp_cubic_tx_start)
	.pkts_acked = cubictcp_acked,
	.get_info = mltcp_cubic_get_info,
	.flags = TCP_CONG_NON_RESTRICTED,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

static int __init mltcp_cubic_register(void)
{
	BUILD_BUG_ON(sizeof(struct mltcp_cubic) > ICSK_CA_PRIV_SIZE);
	cubictcp_scales();
	return cc_register(&mltcp_cubic);
}

static void __exit mltcp_cubic_unregister(void)
{
	cc_unregister(&mltcp_cubic);
}

module_init(mltcp_cubic_register);
module_exit(mltcp_cubic_unregister);

MODULE_AUTHOR("MLTCP testbed");
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("MLTCP-CUBIC: increment per ACK scaled by the share of an iteration already sent");
