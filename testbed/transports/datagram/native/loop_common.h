/* SPDX-License-Identifier: BSD-3-Clause */
/* What both socket loops do between two waits. */
#ifndef DATAGRAM_LOOP_COMMON_H
#define DATAGRAM_LOOP_COMMON_H

#include "socket_state.h"

/* Tell who waits, and leave the counters where who samples them reads them. */
void loop_publish(struct endpoint *endpoint);
/* When there is something to do again; rest: until then what arrives waits. */
uint64_t loop_next_wake(const struct endpoint *endpoint, uint64_t now, uint64_t *rest);

#endif
