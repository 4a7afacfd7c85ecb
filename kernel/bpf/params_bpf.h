/* SPDX-License-Identifier: GPL-2.0-only */
/* Parameters as constants of an eBPF program, which the loader sets. */
#ifndef MLTCP_PARAMS_BPF_H
#define MLTCP_PARAMS_BPF_H

#include "tcp.h"

#define CA_TYPE_int	s32
#define CA_TYPE_uint	u32
#define CA_TYPE_ullong	u64

#define CA_GLOBAL(member, name, type, value, low, high, text) \
	const volatile CA_TYPE_##type name = value;
#define CA_MEMBER(member, name, type, value, low, high, text) \
	.name = name,

#endif /* MLTCP_PARAMS_BPF_H */
