// SPDX-License-Identifier: GPL-2.0-only
/*
 * MLTCP-CUBIC: CUBIC, with its increment per ACK scaled by F (see mltcp.h).
 *
 * CUBIC turns its distance below the curve into a count of ACKed segments per
 * segment of growth. Counting every ACKed segment F times scales the increment
 * for every window: on the concave and the convex part of the cubic, and in the
 * TCP-friendly region. There the estimate of Reno's window grows by the same
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
	mltcp_ca_init(sk, &ca->m);
}

static void mltcp_cubic_release(struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	mltcp_ca_release(sk, &ca->m);
}

static void mltcp_cubic_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	acked = mltcp_ca_scale(sk, &ca->m, acked);
	cubictcp_cong_avoid(sk, ack, acked);
}

static u32 mltcp_cubic_ssthresh(struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	return mltcp_ca_reduced(sk, &ca->m, cubictcp_recalc_ssthresh(sk));
}

static void mltcp_cubic_tx_start(struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	cubictcp_tx_start(sk);
	mltcp_ca_tx_start(sk, &ca->m);
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

	return mltcp_ca_info(sk, &ca->m, ext, attr, info);
}

static struct tcp_congestion_ops mltcp_cubic __read_mostly = {
	.init = mltcp_cubic_init,
	.release = mltcp_cubic_release,
	.ssthresh = mltcp_cubic_ssthresh,
	.cong_avoid = mltcp_cubic_cong_avoid,
	.set_state = cubictcp_state,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cwnd_event = mltcp_cubic_cwnd_event,
	CA_OP_TX_START(mltcp_cubic_tx_start)
	.pkts_acked = cubictcp_acked,
	.get_info = mltcp_cubic_get_info,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

CC_MODULE(mltcp_cubic, struct mltcp_cubic, "MLTCP-CUBIC: increment per ACK scaled by the share of an iteration sent");
