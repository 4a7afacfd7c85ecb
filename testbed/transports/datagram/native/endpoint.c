// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "endpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "calls_loop.h"
#include "ring_loop.h"
#include "socket.h"

#define LARGEST_RECEIVED 65536

static void *serve(void *argument)
{
	struct endpoint *endpoint = argument;

	prctl(PR_SET_TIMERSLACK, 1); /* ns: it paces by timers */
	if (endpoint->by_ring && endpoint->settings.acks > 1)
		endpoint->ring = ring_open(endpoint->fd, endpoint->wake, endpoint->longest);
	pthread_mutex_lock(&endpoint->lock);
	if (endpoint->ring)
		ring_loop_run(endpoint);
	else
		calls_loop_run(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
	if (endpoint->ring)
		ring_close(endpoint->ring);
	return NULL;
}

static void endpoint_wake(struct endpoint *endpoint)
{
	uint64_t one = 1;

	(void)!write(endpoint->wake, &one, sizeof(one));
}

void endpoint_close(struct endpoint *endpoint)
{
	int i;

	if (endpoint->running) {
		pthread_mutex_lock(&endpoint->lock);
		endpoint->stop = true;
		pthread_mutex_unlock(&endpoint->lock);
		endpoint_wake(endpoint);
		pthread_join(endpoint->thread, NULL);
		pthread_mutex_lock(&endpoint->lock);
		while (endpoint->following) {
			pthread_cond_broadcast(&endpoint->followed);
			pthread_cond_wait(&endpoint->changed, &endpoint->lock);
		}
		pthread_mutex_unlock(&endpoint->lock);
	}
	waiters_free(endpoint->waiters);
	waiters_free(endpoint->heard);
	if (endpoint->fd >= 0)
		close(endpoint->fd);
	if (endpoint->wake >= 0)
		close(endpoint->wake);
	if (endpoint->shared)
		munmap(endpoint->shared, endpoint->settings.ranks * sizeof(struct dg_flow_sample));
	for (i = 0; i < BATCH; i++) {
		free(endpoint->slots[i].datagram);
		free(endpoint->incoming[i]);
	}
	dg_delete(endpoint->core);
	free(endpoint->addresses);
	free(endpoint->paths);
	free(endpoint->turns);
	free(endpoint);
}

struct endpoint *endpoint_open(const struct dg_settings *settings, const char *const *addresses, const uint16_t *ports,
			       int send_bytes, int receive_bytes, int segments, const uint8_t *key, int counters,
			       uint64_t at, const char *const *paths, uint32_t path_count, int by_ring)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));
	int error;
	uint32_t i;

	if (!endpoint)
		return NULL;
	endpoint->fd = -1;
	endpoint->wake = -1;
	endpoint->last = &endpoint->waiters;
	endpoint->last_heard = &endpoint->heard;
	endpoint->settings = *settings;
	endpoint->most_segments = segments > 1 ? segments : 1;
	endpoint->by_ring = by_ring;
	if (key) {
		endpoint->keyed = true;
		memcpy(endpoint->key, key, SIPHASH_KEY);
	}
	endpoint->longest = segments > 1 ? LARGEST_RECEIVED : DG_DATA_HEADER + settings->segment + DG_LONGEST_CONTROL;
	endpoint->addresses = calloc(settings->ranks, sizeof(*endpoint->addresses));
	endpoint->paths = calloc(settings->ranks * path_count + 1, sizeof(*endpoint->paths));
	endpoint->turns = calloc(2 * settings->ranks, sizeof(*endpoint->turns));
	endpoint->path_count = path_count;
	endpoint->core = dg_new(settings);
	pthread_mutex_init(&endpoint->lock, NULL);
	waiters_make_condition(&endpoint->changed);
	waiters_make_condition(&endpoint->followed);
	if (!endpoint->addresses || !endpoint->paths || !endpoint->turns || !endpoint->core)
		goto fail;
	for (i = 0; i < settings->ranks; i++)
		if (!socket_address(&endpoint->addresses[i], addresses[i], ports[i]))
			goto fail;
	for (i = 0; i < settings->ranks * path_count; i++)
		if (!socket_address(&endpoint->paths[i], paths[i], ports[i / path_count]))
			goto fail;
	for (i = 0; i < BATCH; i++) {
		struct msghdr *message = &endpoint->arriving[i].msg_hdr;

		endpoint->slots[i].datagram = malloc(DG_LONGEST_CONTROL + settings->segment + SIPHASH_MAC);
		endpoint->incoming[i] = malloc(endpoint->longest);
		if (!endpoint->slots[i].datagram || !endpoint->incoming[i])
			goto fail;
		endpoint->into[i].iov_base = endpoint->incoming[i];
		endpoint->into[i].iov_len = endpoint->longest;
		message->msg_iov = &endpoint->into[i];
		message->msg_iovlen = 1;
		message->msg_name = &endpoint->from[i];
		message->msg_control = endpoint->control[i];
	}
	if (counters >= 0) {
		endpoint->shared = mmap(NULL, settings->ranks * sizeof(struct dg_flow_sample), PROT_READ | PROT_WRITE,
					MAP_SHARED, counters, at);
		if (endpoint->shared == MAP_FAILED) {
			endpoint->shared = NULL;
			goto fail;
		}
	}
	endpoint->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (endpoint->wake < 0 || !socket_open(endpoint, send_bytes, receive_bytes))
		goto fail;
	error = pthread_create(&endpoint->thread, NULL, serve, endpoint);
	if (error) {
		errno = error;
		goto fail;
	}
	endpoint->running = true;
	return endpoint;
fail:
	error = errno;
	endpoint_close(endpoint);
	errno = error;
	return NULL;
}

void endpoint_call(struct endpoint *endpoint, uint32_t rank)
{
	pthread_mutex_lock(&endpoint->lock);
	dg_call(endpoint->core, rank, now_ns());
	pthread_mutex_unlock(&endpoint->lock);
	endpoint_wake(endpoint);
}

int endpoint_await(struct endpoint *endpoint, uint32_t rank, uint64_t ns)
{
	uint64_t until = now_ns() + ns;
	int connected;

	pthread_mutex_lock(&endpoint->lock);
	while (!dg_connected(endpoint->core, rank))
		if (!waiters_wait(endpoint, &endpoint->changed, until))
			break;
	connected = dg_connected(endpoint->core, rank);
	pthread_mutex_unlock(&endpoint->lock);
	return connected;
}

uint32_t endpoint_segment(struct endpoint *endpoint, uint32_t rank)
{
	uint32_t segment;

	pthread_mutex_lock(&endpoint->lock);
	segment = dg_segment(endpoint->core, rank);
	pthread_mutex_unlock(&endpoint->lock);
	return segment;
}

struct dg_transfer *endpoint_send(struct endpoint *endpoint, uint32_t to, uint32_t round, uint32_t message,
				  uint64_t bytes, const uint8_t *data, const uint8_t *tags,
				  const struct dg_span *critical, size_t criticals)
{
	struct dg_transfer *transfer;
	int error;

	pthread_mutex_lock(&endpoint->lock);
	transfer = dg_send(endpoint->core, to, round, message, bytes, data, tags, critical, criticals, now_ns());
	error = errno;
	pthread_mutex_unlock(&endpoint->lock);
	endpoint_wake(endpoint);
	errno = error;
	return transfer;
}

struct dg_transfer *endpoint_receive(struct endpoint *endpoint, uint32_t from, uint32_t round, uint32_t message,
				     uint64_t bytes, uint8_t *into, const struct dg_closing_rule *how,
				     const struct dg_span *critical, size_t criticals)
{
	struct dg_transfer *transfer;
	int error;

	pthread_mutex_lock(&endpoint->lock);
	transfer = dg_receive(endpoint->core, from, round, message, bytes, into, how, critical, criticals, now_ns());
	error = errno;
	pthread_mutex_unlock(&endpoint->lock);
	endpoint_wake(endpoint);
	errno = error;
	return transfer;
}

size_t endpoint_holes(struct endpoint *endpoint, const struct dg_transfer *transfer, struct dg_span *holes, size_t most)
{
	size_t count;

	pthread_mutex_lock(&endpoint->lock);
	count = dg_holes(transfer, holes, most);
	pthread_mutex_unlock(&endpoint->lock);
	return count;
}

void endpoint_release(struct endpoint *endpoint, struct dg_transfer *transfer)
{
	pthread_mutex_lock(&endpoint->lock);
	dg_release(endpoint->core, transfer);
	pthread_mutex_unlock(&endpoint->lock);
}

void endpoint_read(struct endpoint *endpoint, uint32_t rank, struct dg_counters *peer, struct endpoint_counters *own)
{
	pthread_mutex_lock(&endpoint->lock);
	dg_read(endpoint->core, rank, peer);
	*own = endpoint->counters;
	pthread_mutex_unlock(&endpoint->lock);
}

void endpoint_end(struct endpoint *endpoint, uint32_t whom)
{
	uint64_t until = now_ns() + NS;
	uint32_t i;

	pthread_mutex_lock(&endpoint->lock);
	dg_end(endpoint->core, whom);
	endpoint_wake(endpoint);
	for (i = 0; i < endpoint->settings.ranks; i++)
		while (!dg_is_gone(endpoint->core, i) && waiters_wait(endpoint, &endpoint->changed, until))
			;
	for (i = 0; i < endpoint->settings.ranks; i++)
		dg_gone(endpoint->core, i);
	waiters_signal(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
}
