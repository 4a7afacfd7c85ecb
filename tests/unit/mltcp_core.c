/* SPDX-License-Identifier: GPL-2.0-only */
/* kernel/mltcp.h for user space: what the tests drive through ctypes. */
#include <stdbool.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#include "mltcp.h"

void core_init(struct mltcp *m, const struct mltcp_params *p) { mltcp_init(m, p); }
s32 core_ratio(const struct mltcp *m, u64 acked) { return mltcp_ratio(m, acked); }
u32 core_factor(const struct mltcp_params *p, s32 ratio) { return mltcp_factor(p, ratio); }
u32 core_scale(struct mltcp *m, const struct mltcp_params *p, u64 bytes, u32 acked)
{
	return mltcp_scale(m, p, bytes, acked);
}
bool core_tx_start(struct mltcp *m, const struct mltcp_params *p, u64 bytes, u32 gap)
{
	return mltcp_tx_start(m, p, bytes, gap);
}
u32 core_size(void) { return sizeof(struct mltcp); }
