// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "socket_input.h"

#include <netinet/udp.h>
#include <string.h>

#define ECN 3 /* of the second byte of an IP header (RFC 3168) */

#ifndef SO_RXQ_OVFL
#define SO_RXQ_OVFL 40
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

uint64_t input_wall_at(struct endpoint *endpoint, uint64_t now)
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
static uint64_t stamp_of(struct endpoint *endpoint, struct msghdr *message, uint64_t now, uint64_t wall, size_t *each,
			 bool *marked)
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
static void take_datagram(struct endpoint *endpoint, uint32_t from, const uint8_t *datagram, size_t bytes, bool marked,
			  uint64_t stamp, uint64_t now)
{
	int rank;

	endpoint->counters.received++;
	if (!dg_is_from(datagram, bytes, from)) {
		endpoint->counters.foreign++;
		return;
	}
	if (endpoint->keyed) {
		if (bytes < SIPHASH_MAC ||
		    !siphash_agrees(endpoint->key, datagram, bytes - SIPHASH_MAC, datagram + bytes - SIPHASH_MAC)) {
			endpoint->counters.forged++;
			return;
		}
		bytes -= SIPHASH_MAC;
	}
	rank = dg_input(endpoint->core, datagram, bytes, stamp, now);
	if (rank >= 0 && marked)
		dg_marked(endpoint->core, rank);
}

void input_take_message(struct endpoint *endpoint, struct msghdr *message, const uint8_t *content, size_t bytes,
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
		take_datagram(endpoint, from, content + at, bytes - at < each ? bytes - at : each, marked, stamp, now);
}

void input_rest(struct endpoint *endpoint, uint64_t now)
{
	if (now - endpoint->drained_at < 3 * endpoint->settings.coalesce_ns)
		endpoint->quiet_until = now + endpoint->settings.coalesce_ns;
	endpoint->drained_at = now;
}
