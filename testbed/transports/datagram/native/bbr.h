/* SPDX-License-Identifier: BSD-3-Clause */
/* The bandwidth-delay product as BBR finds it (Cardwell et al., 2016). Losses do not enter. */
#ifndef DATAGRAM_BBR_H
#define DATAGRAM_BBR_H

#include "congestion_ops.h"

extern const struct congestion_ops bbr_ops;

/* draw: a random number, so that flows that begin together do not probe together. */
void bbr_init(struct congestion *cc, uint32_t draw);
uint64_t bbr_pacing_rate(const struct congestion *cc);
uint64_t bbr_window(const struct congestion *cc);

#endif
