/* SPDX-License-Identifier: GPL-2.0-only */
/* DCQCN's parameters in eBPF. */
#ifndef MLTCP_DCQCN_BPF_H
#define MLTCP_DCQCN_BPF_H

#include "params_bpf.h"
#include "../dcqcn_tcp.h"

DCQCN_PARAMETERS(CA_GLOBAL)

static inline struct dcqcn_params dcqcn_params(void)
{
	return (struct dcqcn_params){ DCQCN_PARAMETERS(CA_MEMBER) };
}

#endif /* MLTCP_DCQCN_BPF_H */
