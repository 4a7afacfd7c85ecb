// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "socket_output.h"

#include <netinet/udp.h>
#include <string.h>

#define LARGEST_SENT 65000 /* by one system call as segments of one another */

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* The next datagrams, as far as there is room for them: how many. */
static uint32_t write_slots(struct endpoint *endpoint, uint64_t now)
{
	struct dg_packet *packet = &endpoint->packet;
	uint32_t count;

	for (count = 0; count < BATCH && dg_output(endpoint->core, now, packet); count++) {
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
static uint32_t batch_length(const struct endpoint *endpoint, uint32_t first, uint32_t count)
{
	const struct slot *one = &endpoint->slots[first];
	uint32_t most = endpoint->most_segments, i, bytes = one->bytes;

	for (i = 1; one->data && i < most && first + i < count; i++) {
		const struct slot *next = &endpoint->slots[first + i];

		bytes += next->bytes;
		if (next->rank != one->rank || next->tag != one->tag || !next->data || next->bytes > one->bytes ||
		    bytes > LARGEST_SENT)
			break;
		if (next->bytes < one->bytes)
			return i + 1;
	}
	return i;
}

/* Say something of a message to the kernel. */
static void add_control(struct endpoint *endpoint, uint32_t at, int level, int type, const void *what, size_t bytes)
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
static struct sockaddr_in *next_address(struct endpoint *endpoint, uint32_t rank, bool data)
{
	uint32_t *turn = &endpoint->turns[2 * rank + data]; /* large and small ones each by themselves */

	if (!endpoint->path_count)
		return &endpoint->addresses[rank];
	return &endpoint->paths[rank * endpoint->path_count + (*turn)++ % endpoint->path_count];
}

bool output_fill(struct endpoint *endpoint, uint64_t now)
{
	uint32_t count = write_slots(endpoint, now), slot, segments;

	for (slot = 0; slot < count; slot += segments) {
		uint32_t at = endpoint->filled++, i;
		struct msghdr *message = &endpoint->outgoing[at].msg_hdr;
		uint16_t each = endpoint->slots[slot].bytes;

		segments = batch_length(endpoint, slot, count);
		for (i = slot; i < slot + segments; i++)
			endpoint->pieces[i] = (struct iovec){ endpoint->slots[i].datagram, endpoint->slots[i].bytes };
		*message = (struct msghdr){
			.msg_name = next_address(endpoint, endpoint->slots[slot].rank, endpoint->slots[slot].data),
			.msg_namelen = sizeof(struct sockaddr_in),
			.msg_iov = &endpoint->pieces[slot],
			.msg_iovlen = segments,
		};
		endpoint->datagrams[at] = segments;
		if (endpoint->slots[slot].tag)
			add_control(endpoint, at, IPPROTO_IP, IP_TOS, (int[]){ endpoint->slots[slot].tag },
				    sizeof(int));
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
