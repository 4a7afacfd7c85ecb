// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "loop_common.h"

#include "waiters.h"

void loop_publish(struct endpoint *endpoint)
{
	struct dg_counters counters;
	uint32_t i;

	if (dg_ended(endpoint->core) != endpoint->ended) {
		endpoint->ended = dg_ended(endpoint->core);
		waiters_signal(endpoint);
	}
	for (i = 0; endpoint->shared && i < endpoint->settings.ranks; i++) {
		dg_read(endpoint->core, i, &counters);
		endpoint->shared[i] = (struct dg_flow_sample){ counters.window, counters.rtt_ns / 1000, counters.acked,
							       counters.resent };
	}
}

uint64_t loop_next_wake(const struct endpoint *endpoint, uint64_t now, uint64_t *rest)
{
	uint64_t next = dg_next(endpoint->core, now);

	if (next > now + 3600 * NS)
		next = now + 3600 * NS;
	*rest = now;
	if (endpoint->quiet_until > now)
		*rest = endpoint->quiet_until;
	else if (next <= now + 2 * endpoint->settings.coalesce_ns)
		*rest = next;
	return next;
}
