// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "waiters.h"

#include <errno.h>
#include <stdlib.h>

void waiters_make_condition(pthread_cond_t *made)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(made, &attributes);
	pthread_condattr_destroy(&attributes);
}

bool waiters_wait(struct endpoint *endpoint, pthread_cond_t *what, uint64_t until)
{
	struct timespec at = { .tv_sec = until / NS, .tv_nsec = until % NS };

	if (until == DG_NEVER)
		return !pthread_cond_wait(what, &endpoint->lock);
	return pthread_cond_timedwait(what, &endpoint->lock, &at) != ETIMEDOUT;
}

void waiters_signal(struct endpoint *endpoint)
{
	struct waiter **at = &endpoint->waiters, *waiter;

	while ((waiter = *at)) {
		if (!dg_done(waiter->transfer)) {
			at = &waiter->next;
		} else if (!waiter->name) {
			pthread_cond_signal(&waiter->ended);
			at = &waiter->next;
		} else {
			*at = waiter->next;
			waiter->next = NULL;
			*endpoint->last_heard = waiter;
			endpoint->last_heard = &waiter->next;
			pthread_cond_signal(&endpoint->followed);
		}
	}
	endpoint->last = at;
	pthread_cond_broadcast(&endpoint->changed);
}

void waiters_free(struct waiter *waiter)
{
	while (waiter) {
		struct waiter *next = waiter->next;

		if (waiter->name) /* one of a thread lies on its stack */
			free(waiter);
		waiter = next;
	}
}

static void stop_waiting(struct endpoint *endpoint, struct waiter *waiter)
{
	struct waiter **at = &endpoint->waiters;

	while (*at != waiter)
		at = &(*at)->next;
	*at = waiter->next;
	if (!*at)
		endpoint->last = at;
}

void endpoint_wait(struct endpoint *endpoint, const struct dg_transfer *transfer, uint64_t ns, struct dg_result *result)
{
	uint64_t until = ns == DG_NEVER ? DG_NEVER : now_ns() + ns;
	struct waiter waiter = { .transfer = transfer };

	pthread_mutex_lock(&endpoint->lock);
	if (!dg_done(transfer) && ns) {
		waiters_make_condition(&waiter.ended);
		*endpoint->last = &waiter;
		endpoint->last = &waiter.next;
		while (!dg_done(transfer) && waiters_wait(endpoint, &waiter.ended, until))
			;
		stop_waiting(endpoint, &waiter);
		pthread_cond_destroy(&waiter.ended);
	}
	dg_result(transfer, result);
	pthread_mutex_unlock(&endpoint->lock);
}

int endpoint_follow(struct endpoint *endpoint, const struct dg_transfer *transfer, uint64_t name)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	if (!waiter)
		return false;
	waiter->transfer = transfer;
	waiter->name = name;
	pthread_mutex_lock(&endpoint->lock);
	*endpoint->last = waiter;
	endpoint->last = &waiter->next;
	if (dg_done(transfer))
		waiters_signal(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
	return true;
}

uint32_t endpoint_heard(struct endpoint *endpoint, uint64_t *names, uint32_t most)
{
	struct waiter *waiter;
	uint32_t count = 0;

	pthread_mutex_lock(&endpoint->lock);
	endpoint->following++;
	while (!endpoint->heard && !endpoint->stop)
		pthread_cond_wait(&endpoint->followed, &endpoint->lock);
	while (!endpoint->stop && count < most && (waiter = endpoint->heard)) {
		endpoint->heard = waiter->next;
		if (!endpoint->heard)
			endpoint->last_heard = &endpoint->heard;
		names[count++] = waiter->name;
		free(waiter);
	}
	endpoint->following--;
	pthread_cond_broadcast(&endpoint->changed);
	pthread_mutex_unlock(&endpoint->lock);
	return count;
}
