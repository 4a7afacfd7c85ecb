/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket loop by system calls: recvmmsg, sendmmsg and ppoll. */
#ifndef DATAGRAM_CALLS_LOOP_H
#define DATAGRAM_CALLS_LOOP_H

#include "socket_state.h"

/* Until the endpoint is told to stop. Its lock is held, but for the wait. */
void calls_loop_run(struct endpoint *endpoint);

#endif
