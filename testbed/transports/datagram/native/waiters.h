/* SPDX-License-Identifier: BSD-3-Clause */
/* Who waits for a transfer, and how it is told that it has ended. */
#ifndef DATAGRAM_WAITERS_H
#define DATAGRAM_WAITERS_H

#include "socket_state.h"

void waiters_make_condition(pthread_cond_t *made);
/* Until somebody signals, or this time of the monotonic clock (DG_NEVER: however long it takes): false. */
bool waiters_wait(struct endpoint *endpoint, pthread_cond_t *what, uint64_t until);
/* Tell those whose transfers have ended. */
void waiters_signal(struct endpoint *endpoint);
void waiters_free(struct waiter *waiter);

/* Until it has ended or so many ns are over (UINT64_MAX: however long it takes). */
void endpoint_wait(struct endpoint *endpoint, const struct dg_transfer *transfer, uint64_t ns,
		   struct dg_result *result);
/*
 * endpoint_heard shall tell this name (not 0) when the transfer has ended; false: there is no memory
 * for it. So one thread may follow any number of them.
 */
int endpoint_follow(struct endpoint *endpoint, const struct dg_transfer *transfer, uint64_t name);
/* The names of those that have ended since, `most` at once; waits until there is one. 0: it is closed. */
uint32_t endpoint_heard(struct endpoint *endpoint, uint64_t *names, uint32_t most);

#endif
