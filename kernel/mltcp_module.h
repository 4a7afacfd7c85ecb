/* SPDX-License-Identifier: GPL-2.0-only */
/* What every MLTCP congestion control as a module tells whoever observes. */
#ifndef MLTCP_MODULE_H
#define MLTCP_MODULE_H

#include "cc_module.h"
#include "mltcp_tcp.h"

/*
 * sock_diag has no attribute for us. Vegas' says "not enabled" in its first
 * word, so that ss(8) ignores the rest: iterations, F, r (both in 1/1024).
 */
static inline size_t mltcp_module_info(const struct sock *sk,
				       const struct mltcp *m, u32 ext,
				       int *attr, union tcp_cc_info *info)
{
	if (!(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	info->vegas.tcpv_enabled = 0;
	info->vegas.tcpv_rttcnt = m->iterations;
	info->vegas.tcpv_rtt = mltcp_sk_factor(sk, m, &cc_params_of(sk)->mltcp);
	info->vegas.tcpv_minrtt = mltcp_ratio(m, tcp_sk(sk)->bytes_acked);
	*attr = INET_DIAG_VEGASINFO;
	return sizeof(info->vegas);
}

#endif /* MLTCP_MODULE_H */
