/* SPDX-License-Identifier: GPL-2.0-only */
/* kernel/mltcp.h and kernel/dcqcn.h for user space: what the tests drive through ctypes. */
#include <stdbool.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int32_t s32;
typedef int8_t s8;
typedef long long s64;
#define div64_u64(a, b) ((u64)(a) / (u64)(b))
#include "mltcp.h"
#include "dcqcn.h"

void core_init(struct mltcp *m, const struct mltcp_params *p) { mltcp_init(m, p); }
s32 core_ratio(const struct mltcp *m, const struct mltcp_params *p, u64 acked) { return mltcp_ratio(m, p, acked); }
void core_know(struct mltcp *m, u64 total) { mltcp_know(m, total); }
u32 core_factor(const struct mltcp_params *p, s32 ratio) { return mltcp_factor(p, ratio); }
u64 core_given(const struct mltcp_params *p, u32 lowat) { return mltcp_given(p, lowat); }
u32 core_scale(struct mltcp *m, const struct mltcp_params *p, u64 bytes, u32 acked)
{
	return mltcp_scale(m, mltcp_factor(p, mltcp_ratio(m, p, bytes)), acked);
}
u32 core_reduced(u32 f, u32 cwnd, u32 reduced) { return mltcp_reduced(f, cwnd, reduced); }
u32 core_window(const struct mltcp_params *p, u32 cwnd, u32 in_flight) { return mltcp_window(p, cwnd, in_flight); }
u32 core_threshold(const struct mltcp_params *p, u32 cwnd, u32 ssthresh) { return mltcp_threshold(p, cwnd, ssthresh); }
bool core_tx_start(struct mltcp *m, const struct mltcp_params *p, u64 given, u64 bytes, u32 gap)
{
	return mltcp_tx_start(m, p, given, bytes, gap);
}
u32 core_size(void) { return sizeof(struct mltcp); }

void core_dcqcn_init(struct dcqcn *d, const struct dcqcn_params *p, u32 now, u64 bytes)
{
	dcqcn_init(d, p, now, bytes);
}
bool core_dcqcn_cnp(struct dcqcn *d, const struct dcqcn_params *p, u32 now, u64 bytes)
{
	return dcqcn_cnp(d, p, now, bytes);
}
void core_dcqcn_advance(struct dcqcn *d, const struct dcqcn_params *p, u32 now, u64 bytes, u32 r_ai)
{
	dcqcn_advance(d, p, now, bytes, r_ai);
}
u32 core_dcqcn_size(void) { return sizeof(struct dcqcn); }
