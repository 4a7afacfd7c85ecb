// SPDX-License-Identifier: GPL-2.0-only
/*
 * MLTCP on a base that the testbed does not ship: Scalable TCP (Kelly, 2003), whose window grows by 1/100 for each
 * ACKed segment and keeps 7/8 after a loss. F scales the ACKed segments, as for any base:
 *
 *	mltcp run --on uml --system scalable ./tcp_mltcp_scalable.c --jobs 2
 */
/* testbed: base=scalable learns */
#include <linux/types.h>
#include "mltcp.h"

#define CC_NAME			"mltcp_scalable"
#define CC_PARAMETERS(P)	MLTCP_PARAMETERS(P)
struct cc_params {
	struct mltcp_params mltcp;
};

#include "mltcp_module.h"

#define SEGMENTS	100U	/* ACKed segments for one more of window */

static void scalable_init(struct sock *sk)
{
	mltcp_ca_init(sk, inet_csk_ca(sk));
}

static void scalable_release(struct sock *sk)
{
	mltcp_ca_release(sk, inet_csk_ca(sk));
}

static void scalable_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	acked = mltcp_ca_scale(sk, inet_csk_ca(sk), acked);
	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, min(tcp_snd_cwnd(tp), SEGMENTS), acked);
}

static u32 scalable_ssthresh(struct sock *sk)
{
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));

	return mltcp_ca_reduced(sk, inet_csk_ca(sk), max(cwnd - (cwnd >> 3), 2U));
}

static void scalable_tx_start(struct sock *sk)
{
	mltcp_ca_tx_start(sk, inet_csk_ca(sk));
}

static void scalable_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		scalable_tx_start(sk);
}

static size_t scalable_get_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)
{
	return mltcp_ca_info(sk, inet_csk_ca(sk), ext, attr, info);
}

static struct tcp_congestion_ops mltcp_scalable __read_mostly = {
	.init = scalable_init,
	.release = scalable_release,
	.ssthresh = scalable_ssthresh,
	.cong_avoid = scalable_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	.cwnd_event = scalable_cwnd_event,
	CA_OP_TX_START(scalable_tx_start)
	.get_info = scalable_get_info,
	.owner = THIS_MODULE,
	.name = CC_NAME,
};

CC_MODULE(mltcp_scalable, struct mltcp, "MLTCP on Scalable TCP");
