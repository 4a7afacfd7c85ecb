/* SPDX-License-Identifier: BSD-3-Clause */
/* A message on its way: what both ends keep of it, and how it is found. */
#ifndef DATAGRAM_TRANSFER_H
#define DATAGRAM_TRANSFER_H

#include "peer.h"
#include "round_clock.h"

#define MOST_BYTES (1ULL << 40) /* of a message */
#define ROUNDS_KEPT 2

struct dg_span {
	uint64_t offset;
	uint64_t bytes;
};

/* How a receiver closes. */
struct dg_closing_rule {
	double tolerance;
	double fraction;
	int64_t lt_ns; /* below 0: so many RTprop (rtts_permille) + bytes / BtlBw, as the sender measures them */
	int64_t after_ns; /* the deadline: so long after LT; below 0: never */
	uint64_t group; /* messages of a round with one clock; 0: a clock of its own */
	uint32_t shared_lt; /* LT by the group's clock, too */
	uint32_t keep; /* leave what stands in holes */
};

struct dg_result {
	uint64_t bytes;
	uint64_t delivered;
	uint64_t resent;
	uint64_t first_ns;
	uint64_t last_ns;
	uint64_t clock_ns; /* when the clock of its closing began */
	uint64_t holes;
	uint32_t reason; /* enum dg_close_reason */
	uint32_t done;
	uint32_t gone; /* who, where that is the reason */
	uint32_t stalled; /* it answers, but acknowledges nothing that is sent to it */
};

/*
 * What has become of a packet of a message that is being sent. REWOUND: lost, and in no queue
 * because there was no memory: found again by going through the message from there on.
 */
enum packet_state { PACKET_WAITING, PACKET_IN_FLIGHT, PACKET_LOST, PACKET_ACKED, PACKET_REWOUND };

struct packet_queue {
	uint64_t *packets; /* ring */
	uint64_t first, count, size;
};

struct transfer_tx {
	const uint8_t *data;
	uint8_t *tags; /* of each packet; NULL: 0 */
	uint8_t *state; /* of each packet */
	uint64_t next_new;
	uint64_t next_critical;
	struct packet_queue lost;
	struct packet_queue urgent; /* lost ones that are critical */
	uint64_t acked;
	uint64_t resent;
	uint64_t told; /* packets whose fate the close has told */
	uint64_t told_bytes; /* of them, delivered */
};

struct transfer_rx {
	uint8_t *into;
	uint8_t *kept; /* what came before it was posted */
	struct dg_closing_rule rule;
	struct round_clock *clock;
	uint64_t began;
	uint64_t tell_at; /* DG_NEVER: the sender knows how it ended */
	uint64_t tell_next; /* first packet of the next piece of the bitmap */
	uint32_t told_times;
	bool telling;
};

struct dg_transfer {
	struct dg_transfer *next; /* of its peer */
	struct dg_transfer *next_open, *next_alike; /* of those still open; of its bucket */
	struct peer *peer;
	uint64_t serial;
	uint32_t round;
	uint32_t message;
	uint64_t bytes;
	uint64_t packets;
	uint32_t segment;
	uint64_t first_ns;
	uint64_t last_ns;
	uint8_t *critical_map; /* a bit for each packet */
	uint8_t *delivered_map; /* the same: of a receiver, or what the close said */
	uint64_t delivered_map_bytes; /* fewer than there are packets for, before it is posted */
	uint64_t reserved; /* bytes of memory, before it is posted */
	uint64_t delivered;
	uint64_t critical_left;
	enum dg_close_reason reason;
	bool receives;
	bool posted;
	bool held; /* somebody has a pointer to it */
	bool done;
	struct transfer_tx tx;
	struct transfer_rx rx;
};

void dg_result(const struct dg_transfer *transfer, struct dg_result *result);
bool dg_done(const struct dg_transfer *transfer);
/* At most so many holes, in order; how many there are. */
size_t dg_holes(const struct dg_transfer *transfer, struct dg_span *holes, size_t most);
void dg_release(struct dg_core *core, struct dg_transfer *transfer);
uint64_t dg_ended(const struct dg_core *core); /* transfers that have ended so far */

uint64_t packet_count(uint64_t bytes, uint32_t segment);
uint64_t transfer_packet_bytes(const struct dg_transfer *transfer, uint64_t packet);
struct dg_transfer *transfer_find(const struct peer *peer, bool receives, uint32_t round, uint32_t message);
/* Whether a message of this size may be posted to or from this rank; else errno says why not. */
bool transfer_may_post(const struct dg_core *core, uint32_t rank, uint64_t bytes);
/* bare: it has nothing for its packets yet. NULL: there is no memory for it. */
struct dg_transfer *transfer_add(struct dg_core *core, struct peer *peer, bool receives, uint32_t round,
				 uint32_t message, uint64_t bytes, bool bare);
/* What a sender or a posted receiver needs for each packet; false: there is no memory for it. */
bool transfer_allocate_maps(struct dg_transfer *transfer);
/* Whether a message that is not posted may take so many more bytes of memory. */
bool transfer_may_reserve(const struct peer *peer, uint64_t bytes);
void transfer_reserve(struct dg_transfer *transfer, uint64_t bytes);
/* It is posted, or dropped. */
void transfer_unreserve(struct dg_transfer *transfer);
/* From now on time or an output may do something for it. */
void transfer_open(struct dg_transfer *transfer);
/* The first and the last packet, and those of the spans, arrive whatever else is given up. */
void transfer_mark_critical(struct dg_transfer *transfer, const struct dg_span *critical, size_t criticals);
/* When the clock of its closing began; 0: it has not. */
uint64_t transfer_clock_began(const struct dg_transfer *transfer);
void transfer_begin_clock(struct dg_transfer *transfer, uint64_t when);
void transfer_zero_holes(struct dg_transfer *transfer);
void transfer_finish(struct dg_core *core, struct dg_transfer *transfer, enum dg_close_reason reason);
/* The same for a sender's, which is dropped if nobody has a pointer to it. */
void transfer_finish_sent(struct dg_core *core, struct dg_transfer *transfer, enum dg_close_reason reason);
void transfer_drop(struct dg_core *core, struct dg_transfer *transfer);
/* Forget what ended two rounds ago and is known to have; a packet that old is stale. */
void transfer_forget_old(struct dg_core *core, struct peer *peer);
void transfer_free(struct dg_core *core, struct dg_transfer *transfer);

#endif
