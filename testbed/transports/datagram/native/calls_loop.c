// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "calls_loop.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "loop_common.h"
#include "socket_input.h"
#include "socket_output.h"

/* Until there is nothing left, or no room in the socket: true. */
static bool send_out(struct endpoint *endpoint, uint64_t now)
{
	for (;;) {
		int count, i;

		if (endpoint->first == endpoint->filled) {
			endpoint->first = 0;
			endpoint->filled = 0;
			if (!output_fill(endpoint, now))
				return false;
		}
		count = sendmmsg(endpoint->fd, endpoint->outgoing + endpoint->first, endpoint->filled - endpoint->first,
				 MSG_DONTWAIT);
		if (count > 0) {
			for (i = 0; i < count; i++)
				endpoint->counters.sent += endpoint->datagrams[endpoint->first + i];
			endpoint->first += count;
			continue;
		}
		if (errno == EAGAIN) {
			dg_held_up(endpoint->core);
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
		wall = input_wall_at(endpoint, now);
		for (i = 0; i < count; i++) {
			input_take_message(endpoint, &endpoint->arriving[i].msg_hdr, endpoint->incoming[i],
					   endpoint->arriving[i].msg_len, now, wall);
			if (endpoint->settings.acks == 1) /* each by itself, also of those that came together */
				send_out(endpoint, now);
		}
		input_rest(endpoint, now);
		if (count < BATCH)
			return now;
	}
}

void calls_loop_run(struct endpoint *endpoint)
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
		dg_tick(endpoint->core, now);
		full = send_out(endpoint, now);
		loop_publish(endpoint);
		next = loop_next_wake(endpoint, now, &rest);
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
