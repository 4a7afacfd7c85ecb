/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket loop by io_uring, for where system calls are dear. */
#ifndef DATAGRAM_RING_LOOP_H
#define DATAGRAM_RING_LOOP_H

#include "socket_state.h"

/*
 * The same as calls_loop_run under virtual time, in one system call each time it is woken. Whoever posts something
 * while it rests waits until it has; and that it was woken by the clock says what time it is.
 */
void ring_loop_run(struct endpoint *endpoint);

#endif
