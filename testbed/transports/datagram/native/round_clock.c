// SPDX-License-Identifier: BSD-3-Clause
#include "round_clock.h"

#include <stdlib.h>

struct round_clock *round_clock_join(struct dg_core *core, uint64_t group, uint32_t round)
{
	struct round_clock *clock;

	for (clock = core->clocks; clock; clock = clock->next)
		if (clock->group == group && clock->round == round)
			break;
	if (!clock) {
		clock = calloc(1, sizeof(*clock));
		if (!clock)
			return NULL;
		clock->group = group;
		clock->round = round;
		clock->next = core->clocks;
		core->clocks = clock;
	}
	clock->users++;
	return clock;
}

void round_clock_release(struct dg_core *core, struct round_clock *clock)
{
	struct round_clock **at;

	if (!clock || --clock->users)
		return;
	for (at = &core->clocks; *at; at = &(*at)->next) {
		if (*at == clock) {
			*at = clock->next;
			free(clock);
			return;
		}
	}
}
