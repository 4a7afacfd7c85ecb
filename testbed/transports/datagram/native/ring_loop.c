// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "ring_loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "loop_common.h"
#include "socket_input.h"
#include "socket_output.h"

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
			input_take_message(endpoint, &event.message, event.bytes, event.length, now,
					   input_wall_at(endpoint, now));
			came = true;
			break;
		case RING_REFUSED: /* it is asked to receive again */
			break;
		case RING_FAILED:
			endpoint->counters.sent -= endpoint->datagrams[event.number];
			if (event.error == EAGAIN) {
				dg_held_up(endpoint->core);
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
		input_rest(endpoint, now);
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
	output_fill(endpoint, now);
	count = endpoint->filled;
	endpoint->filled = 0;
	for (i = 0; i < count; i++)
		hand_over(endpoint, i);
	return count == BATCH;
}

void ring_loop_run(struct endpoint *endpoint)
{
	uint64_t now = 0, next, rest = 0;
	bool waits;

	while (!endpoint->stop) {
		now = take_in_ring(endpoint, now, rest);
		dg_tick(endpoint->core, now);
		waits = !hand_over_next(endpoint, now);
		loop_publish(endpoint);
		next = loop_next_wake(endpoint, now, &rest);
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
