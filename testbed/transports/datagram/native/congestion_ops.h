/* SPDX-License-Identifier: BSD-3-Clause */
/* What a congestion control is: a table of functions over what is measured of the path. */
#ifndef DATAGRAM_CONGESTION_OPS_H
#define DATAGRAM_CONGESTION_OPS_H

#include "path.h"
#include "settings.h"

enum bbr_mode { BBR_STARTUP, BBR_DRAIN, BBR_PROBE_BW, BBR_PROBE_RTT };

struct bbr_state {
	enum bbr_mode mode;
	uint64_t full; /* bytes/s, when it last grew by a quarter */
	uint32_t full_rounds;
	uint32_t cycle;
	uint64_t cycle_at;
	uint64_t probe_until; /* of the RTT; 0: the queue is not empty yet */
};

struct aimd_state {
	uint64_t speed; /* bytes/s; 0: nothing was heard yet */
	uint64_t last_rtt;
	uint64_t acked; /* bytes, when it was last asked */
	uint64_t round_ends; /* bytes acknowledged */
	uint64_t slope_ends; /* of a round in which it fell because the delay grew */
	uint64_t packets, marked; /* of this round */
	uint32_t share; /* of packets that are marked, smoothed, in 1/1024 */
	bool rises; /* doubles each round trip, as at first */
};

struct congestion {
	const struct congestion_ops *ops;
	struct congestion_settings settings;
	struct path path;
	uint32_t probe_permille; /* of what it sends more, then less, to find out whether there is more; 1000: as BBR */
	struct bbr_state bbr;
	struct aimd_state aimd;
};

struct congestion_ops {
	const char *name;
	bool window_limited; /* no more than a window is on its way; else it paces only */
	bool timer_alone_finds_losses; /* else later packets that arrive do, too */
	bool reads_ecn; /* the sockets report how packets were marked */
	void (*on_ack)(struct congestion *cc, const struct ack_sample *sample, const struct path_change *change);
	uint64_t (*pacing_rate)(const struct congestion *cc); /* bytes/s, never 0 */
	uint64_t (*window)(const struct congestion *cc); /* bytes */
};

#endif
