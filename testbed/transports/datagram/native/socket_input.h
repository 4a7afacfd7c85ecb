/* SPDX-License-Identifier: BSD-3-Clause */
/* What a socket brings: datagrams with their stamps and marks, into the core. */
#ifndef DATAGRAM_SOCKET_INPUT_H
#define DATAGRAM_SOCKET_INPUT_H

#include "socket_state.h"

/*
 * The time of day at a time of the monotonic clock. Asked now and then: each look at a clock is a
 * system call where time is virtual.
 */
uint64_t input_wall_at(struct endpoint *endpoint, uint64_t now);
/* What one message of the socket holds: a datagram, or several of one peer. */
void input_take_message(struct endpoint *endpoint, struct msghdr *message, const uint8_t *content, size_t bytes,
			uint64_t now, uint64_t wall);
/*
 * Something has come. Where much comes, the socket is left alone for a while afterwards, as an
 * adapter holds back its interrupts; where little does, that would only cost a wake-up more.
 */
void input_rest(struct endpoint *endpoint, uint64_t now);

#endif
