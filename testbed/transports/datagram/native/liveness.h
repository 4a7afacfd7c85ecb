/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a peer is there: it is asked while something is under way, and gone if it stays silent. */
#ifndef DATAGRAM_LIVENESS_H
#define DATAGRAM_LIVENESS_H

#include "peer.h"

/* A peer is gone: what has to do with it fails. */
void dg_gone(struct dg_core *core, uint32_t rank);
int dg_is_gone(const struct dg_core *core, uint32_t rank);
/* Every peer is told that this one leaves, because `whom` is gone (itself: nobody is), and then counts as gone, too. */
void dg_end(struct dg_core *core, uint32_t whom);

/* While something is under way, a peer that is silent is asked whether it is there. */
void liveness_watch(struct dg_core *core, struct peer *peer, uint64_t now);
/* Ask, or give it up, if it is time to. */
void liveness_tick(struct dg_core *core, struct peer *peer, uint64_t now);
void liveness_take_pong(struct peer *peer, bool busy, uint64_t arrived, uint64_t now);
void liveness_take_end(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes);
/* END, PING or PONG, if one is due. */
bool liveness_write_end(struct dg_core *core, struct peer *peer, struct dg_packet *packet);
bool liveness_write_ping(const struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now);

#endif
