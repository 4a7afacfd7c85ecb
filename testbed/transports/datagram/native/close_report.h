/* SPDX-License-Identifier: BSD-3-Clause */
/* How a sender learns what its receiver closed without: CLOSE in pieces, each until CLOSED confirms all. */
#ifndef DATAGRAM_CLOSE_REPORT_H
#define DATAGRAM_CLOSE_REPORT_H

#include "transfer.h"

/* The sender's side. handed: its program has posted the message. */
void close_report_confirm(struct peer *peer, uint32_t round, uint32_t message, bool handed);
void close_report_take(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes, uint64_t now);
bool close_report_write_confirmation(const struct dg_core *core, struct peer *peer, struct dg_packet *packet);

/* The receiver's side. */
void close_report_begin(struct dg_transfer *transfer, uint64_t now);
/* Its sender still sends: tell it again within a round trip. */
void close_report_hasten(struct dg_transfer *transfer, uint64_t now);
void close_report_take_confirmation(struct peer *peer, uint16_t flags, const uint8_t *datagram, size_t bytes);
bool close_report_write(const struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now);

#endif
