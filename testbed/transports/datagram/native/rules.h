/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast MLT (Wang et al., NSDI 2024) and DLCP (2020) send: a rate and no window, by the delay
 * of each acknowledgement, or by the marks of a round.
 */
#ifndef TRANSPORTS_RULES_H
#define TRANSPORTS_RULES_H

#include <stdbool.h>
#include <stdint.h>

struct rate;
struct rate_sample;

enum rule_name { RULE_NONE, RULE_DELAY, RULE_MARKS };

struct rule {
	uint32_t name;
	uint32_t step_permille; /* of the highest delivery rate: what is added at a time */
	uint32_t decrease_permille; /* beta */
	uint32_t first_permille; /* of a window of ten packets: what is sent in the first round trip */
	uint32_t increase_wins; /* where a delay above the higher limit shrinks, and both rules match */
	uint32_t by_gradient; /* between the limits a growing delay lowers the rate, too, as TIMELY's */
	uint64_t low; /* ns above the shortest round trip */
	uint64_t high;
};

struct rule_state {
	uint64_t speed; /* bytes/s; 0: nothing was heard yet */
	uint64_t last_rtt;
	uint64_t acked; /* bytes, when it was last asked */
	uint64_t round_ends; /* bytes acknowledged */
	uint64_t slope_ends; /* of a round in which it fell because the delay grew */
	uint64_t packets, marked; /* of this round */
	uint32_t share; /* of packets that are marked, smoothed, in 1/1024 */
	bool rises; /* doubles each round trip, as at first */
};

void rule_ack(struct rate *rate, const struct rate_sample *sample);
uint64_t rule_speed(const struct rate *rate); /* bytes/s; 0: not known */

#endif
