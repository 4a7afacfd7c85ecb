/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast MLT (Wang et al., NSDI 2024) and DLCP (2020) send: a rate and no window, by the delay
 * of each ACK, or by the ECN marks of a round.
 */
#ifndef DATAGRAM_AIMD_H
#define DATAGRAM_AIMD_H

#include "congestion_ops.h"

extern const struct congestion_ops delay_ops; /* MLT */
extern const struct congestion_ops ecn_ops; /* DLCP */

#endif
