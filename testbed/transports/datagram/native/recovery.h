/* SPDX-License-Identifier: BSD-3-Clause */
/* What was sent and is not acknowledged: ACKs, losses and the timeout. */
#ifndef DATAGRAM_RECOVERY_H
#define DATAGRAM_RECOVERY_H

#include "transfer.h"

struct flight {
	uint64_t number;
	uint64_t sent;
	uint64_t serial;
	uint64_t packet;
	uint64_t delivered; /* the receiver's count and stamp, as last heard when this was sent */
	uint64_t arrived;
	uint64_t acked; /* bytes, at that time */
	uint32_t bytes;
	uint8_t state; /* enum packet_state; WAITING: the slot is free */
	bool app_limited;
	bool was_idle;
};

/* The ring of flights; false: there is no memory for it. */
bool recovery_init(struct peer *peer);
/* Room for one more flight; false: there is no memory for it. */
bool flights_grow(struct peer *peer);
bool queue_push(struct packet_queue *queue, uint64_t packet);
/* The next one of the queue that still counts as lost. */
bool queue_pop(struct dg_transfer *transfer, struct packet_queue *queue, uint64_t *packet);
void recovery_take_ack(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes, uint64_t arrived,
		       uint64_t now);
/* Each time twice as long; but a peer is tried eight times, at least, before it counts as gone. */
uint64_t recovery_timeout_at(const struct dg_core *core, const struct peer *peer);
void recovery_time_out(struct peer *peer, uint64_t now);
/* As MLTCP scales what TCP adds (arXiv 2402.09589): the closer to its end a round is, the more. */
void recovery_scale_probe(const struct dg_core *core, struct peer *peer);

#endif
