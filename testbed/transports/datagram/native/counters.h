/* SPDX-License-Identifier: BSD-3-Clause */
/* What an end counts for each of its peers. */
#ifndef DATAGRAM_COUNTERS_H
#define DATAGRAM_COUNTERS_H

#include <stdint.h>

struct dg_counters {
	uint64_t acked; /* bytes */
	uint64_t sent; /* bytes of messages handed over */
	uint64_t resent; /* packets */
	uint64_t rate_bps;
	uint64_t rtprop_ns;
	uint64_t rtt_ns;
	uint64_t window; /* packets */
	uint64_t stale; /* datagrams of another connection, round, or version */
	uint64_t malformed;
	uint64_t burst; /* most packets that left at one instant */
	uint64_t handed; /* datagrams that show that its program goes on: of messages that it has handed over */
};

/* Of every peer, where who samples them reads them; in the order of flows.csv. */
struct dg_flow_sample {
	uint64_t window, rtt_us, acked, resent;
};

#endif
