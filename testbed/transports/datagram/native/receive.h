/* SPDX-License-Identifier: BSD-3-Clause */
/* What arrives: packets into messages, and the ACKs that tell of them. */
#ifndef DATAGRAM_RECEIVE_H
#define DATAGRAM_RECEIVE_H

#include "transfer.h"

/* As dg_send (send.h). */
struct dg_transfer *dg_receive(struct dg_core *core, uint32_t from, uint32_t round, uint32_t message, uint64_t bytes,
			       uint8_t *into, const struct dg_closing_rule *rule, const struct dg_span *critical,
			       size_t criticals, uint64_t now);

/* The ring of packet numbers that were seen; false: there is no memory for it. */
bool receive_init(struct peer *peer);
void receive_data(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes, uint64_t arrived,
		  uint64_t now);
/* When what came must be acknowledged. */
uint64_t receive_ack_due(const struct dg_core *core, const struct peer *peer);
bool receive_write_ack(const struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now);

#endif
