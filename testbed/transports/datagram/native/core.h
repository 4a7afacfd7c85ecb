/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport between the workers of a job that LTP, MLT, DLCP and OptiReduce share: its state machine,
 * which knows neither sockets nor clocks. Whoever drives it hands in datagrams and the time, takes out
 * datagrams, and asks when it wants to be called again. All times are in ns of one clock that never goes
 * back. Messages are posted by dg_send and dg_receive.
 */
#ifndef DATAGRAM_CORE_H
#define DATAGRAM_CORE_H

#include "counters.h"
#include "handshake.h"
#include "liveness.h"
#include "receive.h"
#include "send.h"
#include "transfer.h"

/* NULL, and errno: EINVAL, ENOMEM. */
struct dg_core *dg_new(const struct dg_settings *settings);
void dg_delete(struct dg_core *core);
/* Whether a datagram names this rank as its sender. */
bool dg_is_from(const uint8_t *datagram, size_t bytes, uint32_t rank);
/* The rank it came from, if it is of a connection; below 0: nothing to do with us. */
int dg_input(struct dg_core *core, const uint8_t *datagram, size_t bytes, uint64_t arrived, uint64_t now);
/* What has just come from this rank was marked on its way (RFC 3168: congestion experienced). */
void dg_marked(struct dg_core *core, uint32_t rank);
/* The next datagram that may leave now; 0: none. */
int dg_output(struct dg_core *core, uint64_t now, struct dg_packet *packet);
/* Its host took no more for a while: what is late now is no timer's fault, and not to be made up for. */
void dg_held_up(struct dg_core *core);
/* When to call again at the latest: dg_tick, then dg_output. */
uint64_t dg_next(const struct dg_core *core, uint64_t now);
void dg_tick(struct dg_core *core, uint64_t now);
void dg_read(const struct dg_core *core, uint32_t rank, struct dg_counters *counters);

#endif
