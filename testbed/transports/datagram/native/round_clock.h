/* SPDX-License-Identifier: BSD-3-Clause */
/* One clock for the messages of a round that close together. */
#ifndef DATAGRAM_ROUND_CLOCK_H
#define DATAGRAM_ROUND_CLOCK_H

#include "peer.h"

struct round_clock {
	struct round_clock *next;
	uint64_t group;
	uint64_t began; /* 0: nothing has arrived */
	uint32_t round;
	uint32_t users;
};

/* The clock of a group in this round, which counts one more user; NULL: there is no memory for it. */
struct round_clock *round_clock_join(struct dg_core *core, uint64_t group, uint32_t round);
/* One user fewer. NULL: nothing happens. */
void round_clock_release(struct dg_core *core, struct round_clock *clock);

#endif
