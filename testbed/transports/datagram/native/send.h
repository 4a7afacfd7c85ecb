/* SPDX-License-Identifier: BSD-3-Clause */
/* What leaves: which packet is next, and when its pacing and its window let it. */
#ifndef DATAGRAM_SEND_H
#define DATAGRAM_SEND_H

#include "transfer.h"

/*
 * Post a message. NULL and errno: EINVAL (no such peer, or no such size), ENOTCONN (the peer is
 * not connected, so that the size of a packet is not known), EEXIST (a message of that name is
 * posted, or has another size), ENOMEM. A post that fails changes nothing. tags: one for each
 * packet; NULL: all 0.
 */
struct dg_transfer *dg_send(struct dg_core *core, uint32_t to, uint32_t round, uint32_t message, uint64_t bytes,
			    const uint8_t *data, const uint8_t *tags, const struct dg_span *critical, size_t criticals,
			    uint64_t now);

/* A packet, if one may leave now. */
bool send_write_data(struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now);
/* When the next packet may leave; DG_NEVER: there is none, or no room for it. */
uint64_t send_next_at(const struct peer *peer);

#endif
