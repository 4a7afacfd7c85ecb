// SPDX-License-Identifier: BSD-3-Clause
#include "path.h"

#include <string.h>

#include "bytes.h"

#define RTPROP_WINDOW (10 * NS)
#define FIRST_RTT 1000000ULL
#define LEAST_RTT 20000ULL /* between hosts that do something with a packet; a handshake in virtual time takes 20 ns */
#define LEAST_TIMEOUT 1000000ULL

void path_init(struct path *path, uint32_t packet, uint64_t coalesce)
{
	memset(path, 0, sizeof(*path));
	path->packet = packet;
	path->coalesce = coalesce;
}

uint64_t path_bandwidth(const struct path *path)
{
	uint64_t highest = 0;
	int i;

	for (i = 0; i < PATH_ROUNDS; i++)
		if (path->highest[i] > highest)
			highest = path->highest[i];
	return highest;
}

uint64_t path_bdp(const struct path *path)
{
	return muldiv(path_bandwidth(path), path->rtprop, NS);
}

uint64_t path_rate_of(const struct path *path, uint64_t bytes)
{
	uint64_t rtt = path->rtt ? path->rtt : FIRST_RTT;

	return muldiv(bytes, NS, rtt > LEAST_RTT ? rtt : LEAST_RTT);
}

uint64_t path_timeout(const struct path *path)
{
	uint64_t rtt = path->rtt ? path->rtt : 100 * FIRST_RTT;
	uint64_t spare = 4 * path->rttvar;

	return rtt + (spare > LEAST_TIMEOUT ? spare : LEAST_TIMEOUT) + path->coalesce + path->held;
}

void path_measure_rtt(struct path *path, uint64_t rtt, uint64_t now)
{
	uint64_t off;

	if (!rtt)
		rtt = 1;
	if (!path->rtt) {
		path->rtt = rtt;
		path->rttvar = rtt / 2;
	} else {
		off = path->rtt > rtt ? path->rtt - rtt : rtt - path->rtt;
		path->rttvar = (3 * path->rttvar + off) / 4;
		path->rtt = (7 * path->rtt + rtt) / 8;
	}
	if (!path->rtprop || rtt <= path->rtprop) {
		path->rtprop = rtt;
		path->rtprop_at = now;
	}
}

/* Whether a round has begun. */
static bool follow_rounds(struct path *path, const struct ack_sample *sample)
{
	bool full = sample->bandwidth && !sample->app_limited;
	bool begins = full && sample->acked_when_sent >= path->round_ends;
	uint64_t *highest;

	if (full)
		path->filled = true;
	if (begins) {
		path->round_ends = sample->acked;
		path->round++;
		path->highest[path->round % PATH_ROUNDS] = 0;
	}
	highest = &path->highest[path->round % PATH_ROUNDS];
	if (sample->bandwidth && (!sample->app_limited || sample->bandwidth >= path_bandwidth(path)) &&
	    sample->bandwidth > *highest)
		*highest = sample->bandwidth;
	return begins;
}

struct path_change path_on_ack(struct path *path, const struct ack_sample *sample)
{
	bool expired = path->rtprop && sample->now > path->rtprop_at + RTPROP_WINDOW;

	if (sample->rtt) {
		path->held -= path->held / 16;
		if (sample->held > path->held)
			path->held = sample->held;
		path_measure_rtt(path, sample->rtt, sample->now);
		/* Alone on its way it met no queue of its own: as good as a probe. */
		if (expired && sample->was_idle) {
			path->rtprop = sample->rtt;
			path->rtprop_at = sample->now;
			expired = false;
		}
	}
	return (struct path_change){ .round_began = follow_rounds(path, sample), .rtprop_expired = expired };
}
