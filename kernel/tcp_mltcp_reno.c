// SPDX-License-Identifier: GPL-2.0-only
/* MLTCP-Reno: Reno, with its additive increase scaled by F (see mltcp.h). */
#include "mltcp_module.h"

static void mltcp_reno_init(struct sock *sk)
{
	mltcp_init(inet_csk_ca(sk), &mltcp_params);
}

static void mltcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!tcp_in_slow_start(tp))
		acked = mltcp_scale(inet_csk_ca(sk), &mltcp_params,
				    tp->bytes_acked, acked);
	tcp_reno_cong_avoid(sk, ack, acked);
}

static void mltcp_reno_tx_start(MLTCP_TX_START_ARGS)
{
	if (MLTCP_IS_TX_START)
		mltcp_module_tx_start(sk, inet_csk_ca(sk));
}

static size_t mltcp_reno_get_info(struct sock *sk, u32 ext, int *attr,
				  union tcp_cc_info *info)
{
	return mltcp_module_info(sk, inet_csk_ca(sk), ext, attr, info);
}

static struct tcp_congestion_ops mltcp_reno __read_mostly = {
	.init = mltcp_reno_init,
	.ssthresh = tcp_reno_ssthresh,
	.cong_avoid = mltcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
	MLTCP_ON_TX_START(mltcp_reno_tx_start),
	.get_info = mltcp_reno_get_info,
	.owner = THIS_MODULE,
	.name = "mltcp_reno",
};

static int __init mltcp_reno_register(void)
{
	BUILD_BUG_ON(sizeof(struct mltcp) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&mltcp_reno);
}

static void __exit mltcp_reno_unregister(void)
{
	tcp_unregister_congestion_control(&mltcp_reno);
}

module_init(mltcp_reno_register);
module_exit(mltcp_reno_unregister);

MODULE_AUTHOR("MLTCP testbed");
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("MLTCP-Reno: additive increase scaled by the share of an iteration already sent");
