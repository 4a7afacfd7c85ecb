/* SPDX-License-Identifier: BSD-3-Clause */
/* What leaves a socket: datagrams of the core, as messages for the kernel. */
#ifndef DATAGRAM_SOCKET_OUTPUT_H
#define DATAGRAM_SOCKET_OUTPUT_H

#include "socket_state.h"

/* The next messages, from `filled` on; false: there are none. */
bool output_fill(struct endpoint *endpoint, uint64_t now);

#endif
