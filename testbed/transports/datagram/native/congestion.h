/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast a connection sends: the congestion control that its settings name. */
#ifndef DATAGRAM_CONGESTION_H
#define DATAGRAM_CONGESTION_H

#include "congestion_ops.h"

/* NULL: there is none of this number. */
const struct congestion_ops *congestion_find(uint32_t control);
void congestion_init(struct congestion *cc, const struct dg_settings *settings, uint32_t draw);
void congestion_on_ack(struct congestion *cc, const struct ack_sample *sample);
uint64_t congestion_pacing_rate(const struct congestion *cc); /* bytes/s */
uint64_t congestion_window(const struct congestion *cc); /* bytes */

#endif
