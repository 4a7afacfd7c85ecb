// SPDX-License-Identifier: BSD-3-Clause
/*
 * The state machine on a UDP socket: one thread receives, sends and keeps time; whoever has
 * something to send or waits for something calls from any other.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"
#include "ring.h"
#include "siphash.h"

#define NS 1000000000ULL
#define BATCH 64
#define ECN 3 /* of the second byte of an IP header (RFC 3168) */
#define LARGEST_RECEIVED 65536
#define LARGEST_SENT 65000 /* by one system call as segments of one another */

#ifndef SO_RXQ_OVFL
#define SO_RXQ_OVFL 40
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

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
	const struct ltp_transfer *transfer;
	pthread_cond_t ended; /* of a thread */
	uint64_t name; /* of one that is followed; 0: of a thread */
	struct waiter *next;
};

struct endpoint {
	struct ltp *ltp;
	struct ltp_settings settings;
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
	struct ltp_shared *shared;
	struct endpoint_counters counters;
	uint64_t ended;
	uint64_t quiet_until, drained_at;
	uint64_t ahead, ahead_at; /* of the monotonic clock is that of the day; when that was asked */

	uint32_t most_segments; /* datagrams to a peer that leave as one; 1: each by itself */
	bool keyed;
	uint8_t key[SIPHASH_KEY];

	struct ltp_packet packet;
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

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * NS + now.tv_nsec;
}

static uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The time of day at a time of the monotonic clock. Asked now and then: each look at a clock is a system call where time is virtual. */
static uint64_t wall_at(struct endpoint *endpoint, uint64_t now)
{
	if (!endpoint->ahead_at || now - endpoint->ahead_at > NS / 10) {
		endpoint->ahead = clock_ns(CLOCK_REALTIME) - now_ns();
		endpoint->ahead_at = now;
	}
	return now + endpoint->ahead;
}

static int rank_of(const struct endpoint *endpoint, const struct sockaddr_in *address)
{
	uint32_t i;

	for (i = 0; i < endpoint->settings.ranks; i++)
		if (endpoint->addresses[i].sin_addr.s_addr == address->sin_addr.s_addr &&
		    endpoint->addresses[i].sin_port == address->sin_port)
			return i;
	return -1;
}

/*
 * When the kernel received it, on the monotonic clock; each: bytes of a datagram, if it is
 * several of one peer that the kernel has joined; marked: a switch's queue was long.
 */
static uint64_t stamp_of(struct endpoint *endpoint, struct msghdr *message, uint64_t now, uint64_t wall,
			 size_t *each, bool *marked)
{
	uint64_t stamp = now;
	struct cmsghdr *part;

	for (part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level == SOL_UDP && part->cmsg_type == UDP_GRO) {
			int bytes;

			memcpy(&bytes, CMSG_DATA(part), sizeof(bytes));
			if (bytes > 0)
				*each = bytes;
		}
		if (part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_TOS)
			*marked = (*CMSG_DATA(part) & ECN) == ECN;
		if (part->cmsg_level != SOL_SOCKET)
			continue;
		if (part->cmsg_type == SCM_TIMESTAMPNS) {
			struct timespec at;
			uint64_t ns;

			memcpy(&at, CMSG_DATA(part), sizeof(at));
			ns = at.tv_sec * NS + at.tv_nsec;
			if (ns <= wall && wall - ns < NS && wall - ns < now)
				stamp = now - (wall - ns);
		} else if (part->cmsg_type == SO_RXQ_OVFL) {
			uint32_t lost;

			memcpy(&lost, CMSG_DATA(part), sizeof(lost));
			endpoint->counters.overflowed = lost;
		}
	}
	return stamp;
}

/* A datagram from the address of a rank, which it has to name, too. */
static void take(struct endpoint *endpoint, uint32_t from, const uint8_t *datagram, size_t bytes, bool marked,
		 uint64_t stamp, uint64_t now)
{
	int rank;

	endpoint->counters.received++;
	if (!ltp_is_from(datagram, bytes, from)) {
		endpoint->counters.foreign++;
		return;
	}
	if (endpoint->keyed) {
		if (bytes < SIPHASH_MAC ||
		    !siphash_agrees(endpoint->key, datagram, bytes - SIPHASH_MAC,
				    datagram + bytes - SIPHASH_MAC)) {
			endpoint->counters.forged++;
			return;
		}
		bytes -= SIPHASH_MAC;
	}
	rank = ltp_input(endpoint->ltp, datagram, bytes, stamp, now);
	if (rank >= 0 && marked)
		ltp_marked(endpoint->ltp, rank);
}

static bool send_out(struct endpoint *endpoint, uint64_t now);

/* What one message of the socket holds: a datagram, or several of one peer. */
static void take_message(struct endpoint *endpoint, struct msghdr *message, const uint8_t *content, size_t bytes,
			 uint64_t now, uint64_t wall)
{
	size_t at, each = bytes;
	bool marked = false;
	uint64_t stamp = stamp_of(endpoint, message, now, wall, &each, &marked);
	int from = rank_of(endpoint, message->msg_name);

	if (message->msg_flags & MSG_TRUNC || from < 0) {
		endpoint->counters.received++;
		endpoint->counters.foreign++;
		return;
	}
	for (at = 0; at < bytes; at += each)
		take(endpoint, from, content + at, bytes - at < each ? bytes - at : each, marked, stamp, now);
}

/*
 * Something has come. Where much comes, the socket is left alone for a while afterwards, as an
 * adapter holds back its interrupts; where little does, that would only cost a wake-up more.
 */
static void rest(struct endpoint *endpoint, uint64_t now)
{
	if (now - endpoint->drained_at < 3 * endpoint->settings.coalesce_ns)
		endpoint->quiet_until = now + endpoint->settings.coalesce_ns;
	endpoint->drained_at = now;
}

/* All that has come. */
static uint64_t take_in(struct endpoint *endpoint, uint64_t now)
{
	uint64_t wall;
	int count, i;

	for (;; now = now_ns()) {
		for (i = 0; i < BATCH; i++) {
			endpoint->arriving[i].msg_hdr.msg_namelen = sizeof(struct sockaddr_in);
			endpoint->arriving[i].msg_hdr.msg_controllen = RING_CONTROL;
		}
		count = recvmmsg(endpoint->fd, endpoint->arriving, BATCH, MSG_DONTWAIT, NULL);
		if (count < 0)
			return now;
		wall = wall_at(endpoint, now);
		for (i = 0; i < count; i++) {
			take_message(endpoint, &endpoint->arriving[i].msg_hdr, endpoint->incoming[i],
				     endpoint->arriving[i].msg_len, now, wall);
			if (endpoint->settings.acks == 1) /* each by itself, also of those that came together */
				send_out(endpoint, now);
		}
		rest(endpoint, now);
		if (count < BATCH)
			return now;
	}
}

/* The next datagrams, as far as there is room for them: how many. */
static uint32_t write_slots(struct endpoint *endpoint, uint64_t now)
{
	struct ltp_packet *packet = &endpoint->packet;
	uint32_t count;

	for (count = 0; count < BATCH && ltp_output(endpoint->ltp, now, packet); count++) {
		struct slot *slot = &endpoint->slots[count];
		uint8_t *end = slot->datagram + packet->header_bytes;

		memcpy(slot->datagram, packet->header, packet->header_bytes);
		if (packet->payload)
			memcpy(end, packet->payload, packet->payload_bytes);
		else
			memset(end, 0, packet->payload_bytes);
		slot->bytes = packet->header_bytes + packet->payload_bytes;
		slot->rank = packet->rank;
		slot->tag = packet->tag;
		slot->data = packet->payload_bytes;
		if (endpoint->keyed) {
			siphash(endpoint->key, slot->datagram, slot->bytes, slot->datagram + slot->bytes);
			slot->bytes += SIPHASH_MAC;
		}
	}
	return count;
}

/* How many slots from here on go to one peer, have one tag, and are equally long, but for the last. */
static uint32_t alike(const struct endpoint *endpoint, uint32_t first, uint32_t count)
{
	const struct slot *one = &endpoint->slots[first];
	uint32_t most = endpoint->most_segments, i, bytes = one->bytes;

	for (i = 1; one->data && i < most && first + i < count; i++) {
		const struct slot *next = &endpoint->slots[first + i];

		bytes += next->bytes;
		if (next->rank != one->rank || next->tag != one->tag || !next->data || next->bytes > one->bytes || bytes > LARGEST_SENT)
			break;
		if (next->bytes < one->bytes)
			return i + 1;
	}
	return i;
}

/* Say something of a message to the kernel. */
static void add_control(struct endpoint *endpoint, uint32_t at, int level, int type, const void *what,
			size_t bytes)
{
	struct msghdr *message = &endpoint->outgoing[at].msg_hdr;
	struct cmsghdr *part = (struct cmsghdr *)(endpoint->said[at] + message->msg_controllen);

	message->msg_control = endpoint->said[at];
	message->msg_controllen += CMSG_SPACE(bytes);
	part->cmsg_level = level;
	part->cmsg_type = type;
	part->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(part), what, bytes);
}

/* Where the next datagram to this rank goes: the next of its ways, or its own address. */
static struct sockaddr_in *way(struct endpoint *endpoint, uint32_t rank, bool data)
{
	uint32_t *turn = &endpoint->turns[2 * rank + data]; /* large and small ones each by themselves */

	if (!endpoint->path_count)
		return &endpoint->addresses[rank];
	return &endpoint->paths[rank * endpoint->path_count + (*turn)++ % endpoint->path_count];
}

static bool fill(struct endpoint *endpoint, uint64_t now)
{
	uint32_t count = write_slots(endpoint, now), slot, segments;

	for (slot = 0; slot < count; slot += segments) {
		uint32_t at = endpoint->filled++, i;
		struct msghdr *message = &endpoint->outgoing[at].msg_hdr;
		uint16_t each = endpoint->slots[slot].bytes;

		segments = alike(endpoint, slot, count);
		for (i = slot; i < slot + segments; i++)
			endpoint->pieces[i] = (struct iovec){ endpoint->slots[i].datagram, endpoint->slots[i].bytes };
		*message = (struct msghdr){
			.msg_name = way(endpoint, endpoint->slots[slot].rank, endpoint->slots[slot].data),
			.msg_namelen = sizeof(struct sockaddr_in),
			.msg_iov = &endpoint->pieces[slot],
			.msg_iovlen = segments,
		};
		endpoint->datagrams[at] = segments;
		if (endpoint->slots[slot].tag)
			add_control(endpoint, at, IPPROTO_IP, IP_TOS, (int[]){ endpoint->slots[slot].tag }, sizeof(int));
		if (endpoint->path_count) { /* it comes from where it is known */
			const struct in_pktinfo from = {
				.ipi_spec_dst = endpoint->addresses[endpoint->settings.rank].sin_addr,
			};

			add_control(endpoint, at, IPPROTO_IP, IP_PKTINFO, &from, sizeof(from));
		}
		if (segments > 1)
			add_control(endpoint, at, SOL_UDP, UDP_SEGMENT, &each, sizeof(each));
	}
	return endpoint->filled;
}

/* Until there is nothing left, or no room in the socket: true. */
static bool send_out(struct endpoint *endpoint, uint64_t now)
{
	for (;;) {
		int count, i;

		if (endpoint->first == endpoint->filled) {
			endpoint->first = endpoint->filled = 0;
			if (!fill(endpoint, now))
				return false;
		}
		count = sendmmsg(endpoint->fd, endpoint->outgoing + endpoint->first,
				 endpoint->filled - endpoint->first, MSG_DONTWAIT);
		if (count > 0) {
			for (i = 0; i < count; i++)
				endpoint->counters.sent += endpoint->datagrams[endpoint->first + i];
			endpoint->first += count;
			continue;
		}
		if (errno == EAGAIN) {
			ltp_held_up(endpoint->ltp);
			return true;
		}
		if (errno == EINTR)
			continue;
		if (errno == EIO || errno == EINVAL)
			endpoint->most_segments = 1; /* not here: what it was for counts as lost */
		endpoint->counters.not_sent += endpoint->datagrams[endpoint->first];
		endpoint->first++;
	}
}

static void tell(struct endpoint *endpoint)
{
	struct waiter **at = &endpoint->waiters, *waiter;

	while ((waiter = *at)) {
		if (!ltp_done(waiter->transfer)) {
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

static void publish(struct endpoint *endpoint)
{
	struct ltp_counters counters;
	uint32_t i;

	if (ltp_ended(endpoint->ltp) != endpoint->ended) {
		endpoint->ended = ltp_ended(endpoint->ltp);
		tell(endpoint);
	}
	for (i = 0; endpoint->shared && i < endpoint->settings.ranks; i++) {
		ltp_read(endpoint->ltp, i, &counters);
		endpoint->shared[i] = (struct ltp_shared){ counters.window, counters.rtt_ns / 1000,
						       counters.acked, counters.resent };
	}
}

/* When there is something to do again; rest: until then what arrives waits. */
static uint64_t next_look(const struct endpoint *endpoint, uint64_t now, uint64_t *rest)
{
	uint64_t next = ltp_next(endpoint->ltp, now);

	if (next > now + 3600 * NS)
		next = now + 3600 * NS;
	*rest = now;
	if (endpoint->quiet_until > now)
		*rest = endpoint->quiet_until;
	else if (next <= now + 2 * endpoint->settings.coalesce_ns)
		*rest = next;
	return next;
}

static void serve_by_calls(struct endpoint *endpoint)
{
	bool full, readable = true;
	uint64_t now, next;

	while (!endpoint->stop) {
		struct pollfd fds[2] = { { .fd = endpoint->wake, .events = POLLIN },
					 { .fd = endpoint->fd, .events = POLLIN } };
		struct timespec timeout;
		uint64_t drained, rest;
		bool quiet;

		now = now_ns();
		if (readable && now >= endpoint->quiet_until)
			now = take_in(endpoint, now);
		ltp_tick(endpoint->ltp, now);
		full = send_out(endpoint, now);
		publish(endpoint);
		next = next_look(endpoint, now, &rest);
		quiet = rest > now;
		if (quiet && rest < next)
			next = rest;
		if (full) {
			fds[1].events |= POLLOUT;
			quiet = false;
			if (next <= now)
				next = now + NS / 1000;
		}
		pthread_mutex_unlock(&endpoint->lock);
		timeout.tv_sec = (next - now) / NS;
		timeout.tv_nsec = (next - now) % NS;
		readable = true;
		if (next > now || full) {
			ppoll(fds, quiet ? 1 : 2, &timeout, NULL);
			readable = quiet || fds[1].revents;
		}
		if (fds[0].revents & POLLIN)
			(void)!read(endpoint->wake, &drained, sizeof(drained));
		pthread_mutex_lock(&endpoint->lock);
		endpoint->counters.wake_ups++;
	}
}

/*
 * Who was woken by a datagram is so when it came, or when a rest was over: its stamp is the time, and
 * no clock has to be asked.
 */
static uint64_t time_of(struct endpoint *endpoint, struct ring_event *event, uint64_t rested)
{
	struct cmsghdr *part;

	if (event->kind != RING_ARRIVED || !endpoint->ahead_at)
		return now_ns();
	for (part = CMSG_FIRSTHDR(&event->message); part; part = CMSG_NXTHDR(&event->message, part)) {
		struct timespec at;
		uint64_t now;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS)
			continue;
		memcpy(&at, CMSG_DATA(part), sizeof(at));
		now = at.tv_sec * NS + at.tv_nsec - endpoint->ahead;
		return now > rested ? now : rested;
	}
	return now_ns();
}

/* What has happened since the ring was last looked at, not before `rested`; now: 0, if it is not known. The time. */
static uint64_t take_in_ring(struct endpoint *endpoint, uint64_t now, uint64_t rested)
{
	struct ring_event event;
	bool came = false;

	while (ring_take(endpoint->ring, &event)) {
		if (!now)
			now = time_of(endpoint, &event, rested);
		switch (event.kind) {
		case RING_ARRIVED:
			take_message(endpoint, &event.message, event.bytes, event.length, now, wall_at(endpoint, now));
			came = true;
			break;
		case RING_REFUSED: /* it is asked to receive again */
			break;
		case RING_FAILED:
			endpoint->counters.sent -= endpoint->datagrams[event.number];
			if (event.error == EAGAIN) {
				ltp_held_up(endpoint->ltp);
				endpoint->again[endpoint->refused++] = event.number;
				endpoint->full = endpoint->full || ring_await_room(endpoint->ring);
				break;
			}
			endpoint->counters.not_sent += endpoint->datagrams[event.number];
			break;
		case RING_ROOM:
			endpoint->full = false;
			break;
		}
	}
	if (!now)
		now = now_ns();
#ifdef CHECK_CLOCK /* by its own reckoning it is never later than it is */
	if (now > now_ns())
		abort();
#endif
	if (came)
		rest(endpoint, now);
	return now;
}

static void hand_over(struct endpoint *endpoint, uint32_t number)
{
	ring_send(endpoint->ring, &endpoint->outgoing[number].msg_hdr, number); /* there is room for BATCH of them */
	endpoint->counters.sent += endpoint->datagrams[number];
}

/* What there was no room for, else what is next. true: as much as there are slots, so that there may be more. */
static bool hand_over_next(struct endpoint *endpoint, uint64_t now)
{
	uint32_t i, count = endpoint->refused;

	if (endpoint->full)
		return false;
	endpoint->refused = 0;
	for (i = 0; i < count; i++)
		hand_over(endpoint, endpoint->again[i]);
	if (count)
		return true;
	fill(endpoint, now);
	count = endpoint->filled;
	endpoint->filled = 0;
	for (i = 0; i < count; i++)
		hand_over(endpoint, i);
	return count == BATCH;
}

/*
 * The same under virtual time, in one system call each time it is woken. Whoever posts something
 * while it rests waits until it has; and that it was woken by the clock says what time it is.
 */
static void serve_by_ring(struct endpoint *endpoint)
{
	uint64_t now = 0, next, rest = 0;
	bool waits;

	while (!endpoint->stop) {
		now = take_in_ring(endpoint, now, rest);
		ltp_tick(endpoint->ltp, now);
		waits = !hand_over_next(endpoint, now);
		publish(endpoint);
		next = next_look(endpoint, now, &rest);
		if (endpoint->full) {
			rest = now;
			if (next <= now)
				next = now + NS / 1000;
		}
		waits = waits && next > now;
		if (!waits) /* nor rests */
			rest = now;
		else if (rest > now && rest < next && next <= rest + 2 * endpoint->settings.coalesce_ns)
			next = rest; /* to see whether what arrives then waits for that */
		pthread_mutex_unlock(&endpoint->lock);
		now = ring_wait(endpoint->ring, waits ? next : 0, rest < next ? rest - now : RING_REST) ? next : 0;
		pthread_mutex_lock(&endpoint->lock);
		endpoint->counters.wake_ups++;
	}
}

static void *serve(void *argument)
{
	struct endpoint *endpoint = argument;

	prctl(PR_SET_TIMERSLACK, 1); /* ns: it paces by timers */
	if (endpoint->by_ring && endpoint->settings.acks > 1)
		endpoint->ring = ring_open(endpoint->fd, endpoint->wake, endpoint->longest);
	pthread_mutex_lock(&endpoint->lock);
	if (endpoint->ring)
		serve_by_ring(endpoint);
	else
		serve_by_calls(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
	if (endpoint->ring)
		ring_close(endpoint->ring);
	return NULL;
}

static void nudge(struct endpoint *endpoint)
{
	uint64_t one = 1;

	(void)!write(endpoint->wake, &one, sizeof(one));
}

static bool set(int fd, int level, int name, int value)
{
	return !setsockopt(fd, level, name, &value, sizeof(value));
}

static bool open_socket(struct endpoint *endpoint, int send_bytes, int receive_bytes)
{
	struct sockaddr_in here = endpoint->addresses[endpoint->settings.rank];
	int fd, none = 0;

	if (endpoint->path_count) /* its other addresses are its own, too */
		here.sin_addr.s_addr = htonl(INADDR_ANY);

	fd = endpoint->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (!set(fd, SOL_SOCKET, SO_RCVBUFFORCE, receive_bytes))
		set(fd, SOL_SOCKET, SO_RCVBUF, receive_bytes);
	if (endpoint->most_segments > 1) {
		set(fd, SOL_UDP, UDP_GRO, 1); /* where the kernel has it not, each comes by itself */
		if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, sizeof(none)))
			endpoint->most_segments = 1;
	}
	/*
	 * Anybody can forge ICMP. Without IP_RECVERR none is heard of, so that none ends a peer or
	 * makes a call fail; with PROBE packets are as large as the interface allows, and never
	 * fragmented, whatever a route's MTU is said to be.
	 */
	return set(fd, SOL_SOCKET, SO_SNDBUF, send_bytes) && set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1) &&
	       set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1) &&
	       set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE) &&
	       (!endpoint->settings.rule.name || set(fd, IPPROTO_IP, IP_RECVTOS, 1)) &&
	       !bind(fd, (const struct sockaddr *)&here, sizeof(here));
}

static void forget(struct waiter *waiter)
{
	while (waiter) {
		struct waiter *next = waiter->next;

		if (waiter->name) /* one of a thread lies on its stack */
			free(waiter);
		waiter = next;
	}
}

/* No other thread may be in a call for it, but in endpoint_heard. */
void endpoint_close(struct endpoint *endpoint)
{
	int i;

	if (endpoint->running) {
		pthread_mutex_lock(&endpoint->lock);
		endpoint->stop = true;
		pthread_mutex_unlock(&endpoint->lock);
		nudge(endpoint);
		pthread_join(endpoint->thread, NULL);
		pthread_mutex_lock(&endpoint->lock);
		while (endpoint->following) {
			pthread_cond_broadcast(&endpoint->followed);
			pthread_cond_wait(&endpoint->changed, &endpoint->lock);
		}
		pthread_mutex_unlock(&endpoint->lock);
	}
	forget(endpoint->waiters);
	forget(endpoint->heard);
	if (endpoint->fd >= 0)
		close(endpoint->fd);
	if (endpoint->wake >= 0)
		close(endpoint->wake);
	if (endpoint->shared)
		munmap(endpoint->shared, endpoint->settings.ranks * sizeof(struct ltp_shared));
	for (i = 0; i < BATCH; i++) {
		free(endpoint->slots[i].datagram);
		free(endpoint->incoming[i]);
	}
	ltp_delete(endpoint->ltp);
	free(endpoint->addresses);
	free(endpoint->paths);
	free(endpoint->turns);
	free(endpoint);
}

static bool address(struct sockaddr_in *made, const char *text, uint16_t port)
{
	made->sin_family = AF_INET;
	made->sin_port = htons(port);
	if (inet_pton(AF_INET, text, &made->sin_addr) == 1)
		return true;
	errno = EINVAL;
	return false;
}

static void make_condition(pthread_cond_t *made)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(made, &attributes);
	pthread_condattr_destroy(&attributes);
}

/*
 * NULL, and errno, if there is no socket to be had at the address of this rank. key: of
 * SIPHASH_KEY bytes, with which every datagram is signed; NULL: none is. counters: a file in
 * memory for who samples them, or -1; at: where in it, a multiple of the page size. paths: of
 * each rank path_count more addresses, which what it sends takes in turn; 0: there are none.
 * by_ring: one system call each time it is woken, for where they are dear (serve_by_ring).
 */
struct endpoint *endpoint_open(const struct ltp_settings *settings, const char *const *addresses,
			       const uint16_t *ports, int send_bytes, int receive_bytes, int segments,
			       const uint8_t *key, int counters, uint64_t at, const char *const *paths,
			       uint32_t path_count, int by_ring)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));
	int error;
	uint32_t i;

	if (!endpoint)
		return NULL;
	endpoint->fd = endpoint->wake = -1;
	endpoint->last = &endpoint->waiters;
	endpoint->last_heard = &endpoint->heard;
	endpoint->settings = *settings;
	endpoint->most_segments = segments > 1 ? segments : 1;
	endpoint->by_ring = by_ring;
	if (key) {
		endpoint->keyed = true;
		memcpy(endpoint->key, key, SIPHASH_KEY);
	}
	endpoint->longest = segments > 1 ? LARGEST_RECEIVED : LTP_DATA_HEADER + settings->segment + LTP_LONGEST;
	endpoint->addresses = calloc(settings->ranks, sizeof(*endpoint->addresses));
	endpoint->paths = calloc(settings->ranks * path_count + 1, sizeof(*endpoint->paths));
	endpoint->turns = calloc(2 * settings->ranks, sizeof(*endpoint->turns));
	endpoint->path_count = path_count;
	endpoint->ltp = ltp_new(settings);
	pthread_mutex_init(&endpoint->lock, NULL);
	make_condition(&endpoint->changed);
	make_condition(&endpoint->followed);
	if (!endpoint->addresses || !endpoint->paths || !endpoint->turns || !endpoint->ltp)
		goto fail;
	for (i = 0; i < settings->ranks; i++)
		if (!address(&endpoint->addresses[i], addresses[i], ports[i]))
			goto fail;
	for (i = 0; i < settings->ranks * path_count; i++)
		if (!address(&endpoint->paths[i], paths[i], ports[i / path_count]))
			goto fail;
	for (i = 0; i < BATCH; i++) {
		struct msghdr *message = &endpoint->arriving[i].msg_hdr;

		endpoint->slots[i].datagram = malloc(LTP_LONGEST + settings->segment + SIPHASH_MAC);
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
		endpoint->shared = mmap(NULL, settings->ranks * sizeof(struct ltp_shared), PROT_READ | PROT_WRITE,
					MAP_SHARED, counters, at);
		if (endpoint->shared == MAP_FAILED) {
			endpoint->shared = NULL;
			goto fail;
		}
	}
	endpoint->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (endpoint->wake < 0 || !open_socket(endpoint, send_bytes, receive_bytes))
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

static bool wait_until(struct endpoint *endpoint, pthread_cond_t *what, uint64_t until)
{
	struct timespec at = { .tv_sec = until / NS, .tv_nsec = until % NS };

	if (until == LTP_NEVER)
		return !pthread_cond_wait(what, &endpoint->lock);
	return pthread_cond_timedwait(what, &endpoint->lock, &at) != ETIMEDOUT;
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

/* Call this peer; it may call first. */
void endpoint_call(struct endpoint *endpoint, uint32_t rank)
{
	pthread_mutex_lock(&endpoint->lock);
	ltp_call(endpoint->ltp, rank, now_ns());
	pthread_mutex_unlock(&endpoint->lock);
	nudge(endpoint);
}

/* Whether this peer has called, or answered, within so many ns. */
int endpoint_await(struct endpoint *endpoint, uint32_t rank, uint64_t ns)
{
	uint64_t until = now_ns() + ns;
	int connected;

	pthread_mutex_lock(&endpoint->lock);
	while (!ltp_connected(endpoint->ltp, rank))
		if (!wait_until(endpoint, &endpoint->changed, until))
			break;
	connected = ltp_connected(endpoint->ltp, rank);
	pthread_mutex_unlock(&endpoint->lock);
	return connected;
}

/* Payload of a packet to this peer, once it is connected. */
uint32_t endpoint_segment(struct endpoint *endpoint, uint32_t rank)
{
	uint32_t segment;

	pthread_mutex_lock(&endpoint->lock);
	segment = ltp_segment(endpoint->ltp, rank);
	pthread_mutex_unlock(&endpoint->lock);
	return segment;
}

/* NULL, and errno: as ltp_send. */
struct ltp_transfer *endpoint_send(struct endpoint *endpoint, uint32_t to, uint32_t round, uint32_t message,
				   uint64_t bytes, const uint8_t *data, const uint8_t *tags,
				   const struct ltp_span *critical, size_t criticals)
{
	struct ltp_transfer *transfer;
	int error;

	pthread_mutex_lock(&endpoint->lock);
	transfer = ltp_send(endpoint->ltp, to, round, message, bytes, data, tags, critical, criticals,
			    now_ns());
	error = errno;
	pthread_mutex_unlock(&endpoint->lock);
	nudge(endpoint);
	errno = error;
	return transfer;
}

/* NULL, and errno: as ltp_receive. */
struct ltp_transfer *endpoint_receive(struct endpoint *endpoint, uint32_t from, uint32_t round,
				      uint32_t message, uint64_t bytes, uint8_t *into,
				      const struct ltp_close *how, const struct ltp_span *critical,
				      size_t criticals)
{
	struct ltp_transfer *transfer;
	int error;

	pthread_mutex_lock(&endpoint->lock);
	transfer = ltp_receive(endpoint->ltp, from, round, message, bytes, into, how, critical, criticals,
			       now_ns());
	error = errno;
	pthread_mutex_unlock(&endpoint->lock);
	nudge(endpoint);
	errno = error;
	return transfer;
}

/* Until it has ended or so many ns are over (UINT64_MAX: however long it takes). */
void endpoint_wait(struct endpoint *endpoint, const struct ltp_transfer *transfer, uint64_t ns,
		   struct ltp_result *result)
{
	uint64_t until = ns == LTP_NEVER ? LTP_NEVER : now_ns() + ns;
	struct waiter waiter = { .transfer = transfer };

	pthread_mutex_lock(&endpoint->lock);
	if (!ltp_done(transfer) && ns) {
		make_condition(&waiter.ended);
		*endpoint->last = &waiter;
		endpoint->last = &waiter.next;
		while (!ltp_done(transfer) && wait_until(endpoint, &waiter.ended, until))
			;
		stop_waiting(endpoint, &waiter);
		pthread_cond_destroy(&waiter.ended);
	}
	ltp_result(transfer, result);
	pthread_mutex_unlock(&endpoint->lock);
}

size_t endpoint_holes(struct endpoint *endpoint, const struct ltp_transfer *transfer, struct ltp_span *holes,
		      size_t most)
{
	size_t count;

	pthread_mutex_lock(&endpoint->lock);
	count = ltp_holes(transfer, holes, most);
	pthread_mutex_unlock(&endpoint->lock);
	return count;
}

/*
 * endpoint_heard shall tell this name (not 0) when the transfer has ended; false: there is no memory
 * for it. So one thread may follow any number of them.
 */
int endpoint_follow(struct endpoint *endpoint, const struct ltp_transfer *transfer, uint64_t name)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	if (!waiter)
		return false;
	waiter->transfer = transfer;
	waiter->name = name;
	pthread_mutex_lock(&endpoint->lock);
	*endpoint->last = waiter;
	endpoint->last = &waiter->next;
	if (ltp_done(transfer))
		tell(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
	return true;
}

/* The names of those that have ended since, `most` at once; waits until there is one. 0: it is closed. */
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

/* Nobody may wait for it any more, or follow it. */
void endpoint_release(struct endpoint *endpoint, struct ltp_transfer *transfer)
{
	pthread_mutex_lock(&endpoint->lock);
	ltp_release(endpoint->ltp, transfer);
	pthread_mutex_unlock(&endpoint->lock);
}

void endpoint_read(struct endpoint *endpoint, uint32_t rank, struct ltp_counters *peer,
		   struct endpoint_counters *own)
{
	pthread_mutex_lock(&endpoint->lock);
	ltp_read(endpoint->ltp, rank, peer);
	*own = endpoint->counters;
	pthread_mutex_unlock(&endpoint->lock);
}

/* Tell everybody, and because of whom (ltp_end); what is under way fails. Who cannot be told within a second is not. */
void endpoint_end(struct endpoint *endpoint, uint32_t whom)
{
	uint64_t until = now_ns() + NS;
	uint32_t i;

	pthread_mutex_lock(&endpoint->lock);
	ltp_end(endpoint->ltp, whom);
	nudge(endpoint);
	for (i = 0; i < endpoint->settings.ranks; i++)
		while (!ltp_is_gone(endpoint->ltp, i) && wait_until(endpoint, &endpoint->changed, until))
			;
	for (i = 0; i < endpoint->settings.ranks; i++)
		ltp_gone(endpoint->ltp, i);
	tell(endpoint);
	pthread_mutex_unlock(&endpoint->lock);
}
