/* SPDX-License-Identifier: BSD-3-Clause */
/* What an end of a datagram transport is told when it is made (native/__init__.py has the same structures). */
#ifndef DATAGRAM_SETTINGS_H
#define DATAGRAM_SETTINGS_H

#include <stdint.h>

/* LTP sends by BBR, MLT and OptiReduce by delay, DLCP by ECN marks. */
enum congestion_control { CONGESTION_BBR, CONGESTION_DELAY, CONGESTION_ECN, CONGESTION_CONTROLS };

struct congestion_settings {
	uint32_t control; /* enum congestion_control; BBR reads none of the others */
	uint32_t step_permille; /* of the highest delivery rate: what is added at a time */
	uint32_t decrease_permille; /* beta */
	uint32_t first_permille; /* of a window of ten packets: what is sent in the first round trip */
	uint32_t increase_wins; /* where a delay above the higher limit shrinks, and both rules match */
	uint32_t by_gradient; /* between the limits a growing delay lowers the rate, too, as TIMELY's */
	uint64_t low; /* ns above the shortest round trip */
	uint64_t high;
};

struct dg_settings {
	uint32_t rank;
	uint32_t ranks;
	uint32_t segment; /* payload of a packet, a multiple of 8 */
	uint32_t reorder; /* later packets acknowledged, until one counts as lost */
	uint32_t rtts_permille; /* of RTprop, how much the first LT has beside the time to send */
	uint32_t acks; /* packets that an ACK waits for at most; 1: one for each */
	uint64_t coalesce_ns; /* for how long a receiver rests, and with it its ACKs */
	uint64_t silence_ns; /* until a peer counts as gone */
	uint64_t seed[2];
	struct congestion_settings congestion;
	uint32_t control_tag; /* of what is no data: the second byte of its IP header */
	/*
	 * How strongly it probes (BBR's way is 1000), or its rate grows by a rule: so much, plus so much for
	 * what of the round's bytes is delivered.
	 */
	uint32_t offset_permille;
	uint32_t slope_permille;
	uint32_t discards; /* nobody looks at bytes: what comes before it is asked for is only counted */
};

#endif
