/* SPDX-License-Identifier: BSD-3-Clause */
/* HELLO, WELCOME, HELLO: how two ends learn that each has read the other's connection id. */
#ifndef DATAGRAM_HANDSHAKE_H
#define DATAGRAM_HANDSHAKE_H

#include "peer.h"

/* Call this peer; it may call first. */
void dg_call(struct dg_core *core, uint32_t rank, uint64_t now);
int dg_connected(const struct dg_core *core, uint32_t rank);
uint32_t dg_segment(const struct dg_core *core, uint32_t rank); /* payload of a packet to this peer */

/* Each returns the rank that it came from, or -1: it may be anybody's. */
int handshake_take_hello(struct dg_core *core, struct peer *peer, uint64_t id, const uint8_t *datagram, size_t bytes,
			 uint64_t now);
int handshake_take_welcome(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes,
			   uint64_t arrived, uint64_t now);
void handshake_complete(struct dg_core *core, struct peer *peer, uint64_t now);
/* HELLO or WELCOME, if one is due. */
bool handshake_write(struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now);

#endif
