/* SPDX-License-Identifier: BSD-3-Clause */
/* What an endpoint holds: a core on a UDP socket, its buffers, and who waits. */
#ifndef DATAGRAM_SOCKET_STATE_H
#define DATAGRAM_SOCKET_STATE_H

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "bytes.h"
#include "core.h"
#include "ring.h"
#include "siphash.h"

#define BATCH 64

struct endpoint_counters {
	uint64_t overflowed; /* datagrams that the socket had no room for */
	uint64_t not_sent; /* that this host itself dropped */
	uint64_t foreign; /* from addresses of nobody we know */
	uint64_t wake_ups;
	uint64_t received;
	uint64_t sent;
	uint64_t forged; /* without the MAC of our key */
};

/* A datagram that leaves, as it is: its buffer may not be there any more when it does. */
struct slot {
	uint8_t *datagram;
	uint32_t bytes;
	uint32_t rank;
	uint8_t tag;
	bool data;
};

/*
 * Who waits for a transfer: a thread, or one that follows many (endpoint_follow). Each is told by
 * itself: thousands may wait, and to wake all of them whenever one has ended would be most of what
 * a window costs.
 */
struct waiter {
	const struct dg_transfer *transfer;
	pthread_cond_t ended; /* of a thread */
	uint64_t name; /* of one that is followed; 0: of a thread */
	struct waiter *next;
};

struct endpoint {
	struct dg_core *core;
	struct dg_settings settings;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct waiter *waiters, **last; /* in the order in which they came */
	struct waiter *heard, **last_heard; /* followed ones that have ended */
	pthread_cond_t followed;
	uint32_t following; /* threads in endpoint_heard */
	pthread_t thread;
	bool running, stop;
	int fd, wake;
	struct sockaddr_in *addresses;
	struct sockaddr_in *paths; /* of each rank so many more addresses, a way to it each */
	uint32_t path_count, *turns; /* 0: there is no choice; whose turn it is, of each rank, data apart */
	struct dg_flow_sample *shared;
	struct endpoint_counters counters;
	uint64_t ended;
	uint64_t quiet_until, drained_at;
	uint64_t ahead, ahead_at; /* of the monotonic clock is that of the day; when that was asked */

	uint32_t most_segments; /* datagrams to a peer that leave as one; 1: each by itself */
	bool keyed;
	uint8_t key[SIPHASH_KEY];

	struct dg_packet packet;
	struct slot slots[BATCH];
	struct iovec pieces[BATCH];
	struct mmsghdr outgoing[BATCH];
	uint32_t datagrams[BATCH]; /* of each of them */
	uint8_t said[BATCH][CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int)) +
			    CMSG_SPACE(sizeof(struct in_pktinfo))] __attribute__((aligned(8)));
	uint32_t first, filled; /* of these, that wait for room in the socket */

	bool by_ring; /* if the kernel can */
	struct ring *ring; /* NULL: by system calls of its own */
	uint32_t again[BATCH], refused; /* of these, that a ring found no room for */
	bool full; /* and there is none yet */

	uint8_t *incoming[BATCH];
	uint32_t longest; /* that they have room for */
	struct mmsghdr arriving[BATCH];
	struct iovec into[BATCH];
	struct sockaddr_in from[BATCH];
	uint8_t control[BATCH][RING_CONTROL] __attribute__((aligned(8)));
};

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * NS + now.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

#endif
