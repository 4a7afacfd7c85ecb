/* SPDX-License-Identifier: BSD-3-Clause */
/* What a sender measures of its path: round trips, and the delivery rate by the receiver's own stamps. */
#ifndef DATAGRAM_PATH_H
#define DATAGRAM_PATH_H

#include <stdbool.h>
#include <stdint.h>

#define PATH_FIRST_WINDOW 10 /* packets, before anything is measured */
#define PATH_ROUNDS 10 /* over which the highest delivery rate counts */

struct path {
	uint32_t packet; /* bytes */
	uint64_t highest[PATH_ROUNDS]; /* bytes/s, one a round */
	bool filled; /* there was once more to send than a window: the path was measured, not the sender */
	uint32_t round;
	uint64_t round_ends; /* bytes acknowledged */
	uint64_t rtprop; /* 0: not known */
	uint64_t rtprop_at;
	uint64_t rtt; /* smoothed */
	uint64_t rttvar;
	uint64_t coalesce;
	uint64_t held; /* by both ends, from a packet's arrival to its ACK's: no part of the path, but of the window */
};

struct ack_sample {
	uint64_t now;
	uint64_t rtt; /* 0: none */
	uint64_t held;
	uint64_t bandwidth; /* bytes/s; 0: none */
	bool app_limited;
	bool was_idle; /* nothing else was on its way when it was sent */
	uint64_t acked; /* bytes, so far */
	uint64_t acked_when_sent;
	uint64_t inflight; /* bytes */
	uint32_t packets; /* newly acknowledged */
	uint32_t marked; /* of them, as the receiver counts */
};

/* What an ACK has shown of the path. */
struct path_change {
	bool round_began; /* by a packet that was not limited by what there was to send */
	bool rtprop_expired; /* nothing as short was met for ten seconds */
};

void path_init(struct path *path, uint32_t packet, uint64_t coalesce);
struct path_change path_on_ack(struct path *path, const struct ack_sample *sample);
void path_measure_rtt(struct path *path, uint64_t rtt, uint64_t now);
uint64_t path_bandwidth(const struct path *path); /* bytes/s; 0: not known */
uint64_t path_bdp(const struct path *path); /* bytes */
/* Bytes/s of so many bytes a round trip, which counts as 20 us at the least. */
uint64_t path_rate_of(const struct path *path, uint64_t bytes);
uint64_t path_timeout(const struct path *path); /* ns without an ACK */

/* value * numerator / denominator, of which the product may need 128 bits. */
static inline uint64_t muldiv(uint64_t value, uint64_t numerator, uint64_t denominator)
{
	return (uint64_t)((__uint128_t)value * numerator / denominator);
}

#endif
