/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast a connection sends: the bandwidth-delay product as BBR finds it (Cardwell et al.,
 * 2016), from the receiver's own stamps. Losses do not enter.
 */
#ifndef TRANSPORTS_RATE_H
#define TRANSPORTS_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "rules.h"

#define RATE_FIRST_WINDOW 10 /* packets, before anything is measured */
#define RATE_ROUNDS 10 /* over which the highest delivery rate counts */

enum rate_mode { RATE_STARTUP, RATE_DRAIN, RATE_PROBE_BW, RATE_PROBE_RTT };

struct rate {
	struct rule rule; /* none: as below */
	struct rule_state state;
	enum rate_mode mode;
	uint32_t packet; /* bytes */
	uint32_t probe_permille; /* of what it sends more, then less, to find out whether there is more; 1000: as BBR */
	uint64_t highest[RATE_ROUNDS]; /* bytes/s, one a round */
	bool filled; /* there was once more to send than a window: the path was measured, not the sender */
	uint32_t round;
	uint64_t round_ends; /* bytes acknowledged */
	uint64_t rtprop; /* 0: not known */
	uint64_t rtprop_at;
	uint64_t rtt; /* smoothed */
	uint64_t rttvar;
	uint64_t full; /* bytes/s, when it last grew by a quarter */
	uint32_t full_rounds;
	uint32_t cycle;
	uint64_t cycle_at;
	uint64_t probe_until; /* of the RTT; 0: the queue is not empty yet */
	uint64_t coalesce;
	uint64_t held; /* by both ends, from a packet's arrival to its ACK's: no part of the path, but of the window */
};

struct rate_sample {
	uint64_t now;
	uint64_t rtt; /* 0: none */
	uint64_t held;
	uint64_t bandwidth; /* bytes/s; 0: none */
	bool app_limited;
	bool was_idle; /* nothing else was on its way when it was sent */
	uint64_t acked; /* bytes, so far */
	uint64_t acked_when_sent;
	uint64_t sent; /* bytes, so far */
	uint64_t inflight; /* bytes */
	uint32_t packets; /* newly acknowledged */
	uint32_t marked; /* of them, as the receiver counts */
};

void rate_init(struct rate *rate, uint32_t packet, uint64_t coalesce, uint32_t draw);
void rate_ack(struct rate *rate, const struct rate_sample *sample);
void rate_rtt(struct rate *rate, uint64_t rtt, uint64_t now);
uint64_t rate_bandwidth(const struct rate *rate); /* bytes/s; 0: not known */
/* Bytes/s of so many bytes a round trip, which counts as 20 us at the least. */
uint64_t rate_per_rtt(const struct rate *rate, uint64_t bytes);
uint64_t rate_pacing(const struct rate *rate); /* bytes/s */
uint64_t rate_window(const struct rate *rate); /* bytes; with a rule what a round trip holds, which limits nothing */
uint64_t rate_timeout(const struct rate *rate); /* ns without an ACK */

#endif
