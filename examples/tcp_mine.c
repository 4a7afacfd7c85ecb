// SPDX-License-Identifier: GPL-2.0-only
/* A custom algorithm as a module, for --on uml --system reno ./FILE:step=4: Reno that grows faster. */
/* testbed: base=reno */
#include <linux/module.h>
#include <net/tcp.h>

static int step = 2;
module_param(step, int, 0444);

static void mine_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, tcp_in_slow_start(tcp_sk(sk)) ? acked : step * acked);
}

static struct tcp_congestion_ops mine = {
	.ssthresh = tcp_reno_ssthresh, .cong_avoid = mine_cong_avoid, .undo_cwnd = tcp_reno_undo_cwnd,
	.owner = THIS_MODULE, .name = "mine",
};

static int __init mine_register(void)
{
	return tcp_register_congestion_control(&mine);
}

static void __exit mine_unregister(void)
{
	tcp_unregister_congestion_control(&mine);
}

module_init(mine_register);
module_exit(mine_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Reno that grows faster");
