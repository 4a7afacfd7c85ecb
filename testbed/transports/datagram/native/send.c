// SPDX-License-Identifier: BSD-3-Clause
#include "send.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "close_report.h"
#include "congestion.h"
#include "liveness.h"
#include "recovery.h"

#define AT_ONCE 4 /* packets */
#define NO_MEMORY (NS / 1000) /* for so long nothing is sent */
#define LATE 1000000ULL /* ns by which a timer may be late without its connection becoming slower */

struct dg_transfer *dg_send(struct dg_core *core, uint32_t to, uint32_t round, uint32_t message, uint64_t bytes,
			    const uint8_t *data, const uint8_t *tags, const struct dg_span *critical, size_t criticals,
			    uint64_t now)
{
	struct dg_transfer *made;
	struct peer *peer;
	uint8_t *own_tags = NULL;

	if (!transfer_may_post(core, to, bytes))
		return NULL;
	peer = &core->peers[to];
	made = transfer_find(peer, false, round, message);
	if (made && (made->posted || made->bytes != bytes)) {
		errno = EEXIST;
		return NULL;
	}
	if (tags) {
		uint64_t packets = packet_count(bytes, peer->segment);

		own_tags = malloc(packets);
		if (!own_tags)
			goto no_memory;
		memcpy(own_tags, tags, packets);
	}
	if (!made) {
		made = transfer_add(core, peer, false, round, message, bytes, false);
		if (!made)
			goto no_memory;
	} else { /* its receiver closed before it was sent, or began to say so */
		if (!made->done && !transfer_allocate_maps(made))
			goto no_memory;
		transfer_unreserve(made);
	}
	if (!made->done)
		transfer_mark_critical(made, critical, criticals);
	made->tx.tags = own_tags;
	made->posted = true;
	made->tx.data = data;
	made->held = true;
	if (!made->done) {
		peer->transfers.unfinished++;
		transfer_open(made);
	}
	peer->tx.offered += bytes;
	if (round > peer->tx.newest_round) {
		peer->tx.newest_round = round;
		peer->tx.last_round_bytes = peer->tx.round_bytes;
		peer->tx.round_bytes = 0;
		peer->tx.round_acked = 0;
	}
	if (round == peer->tx.newest_round)
		peer->tx.round_bytes += bytes;
	recovery_scale_probe(core, peer);
	if (peer->liveness.gone && !made->done)
		transfer_finish(core, made, DG_GONE);
	if (made->done)
		close_report_confirm(peer, round, message,
				     true); /* once more: its receiver may take this worker for dead */
	liveness_watch(core, peer, now);
	return made;
no_memory:
	free(own_tags);
	errno = ENOMEM;
	return NULL;
}

static bool next_waiting(const struct dg_transfer *transfer, uint64_t *at, bool critical)
{
	for (; *at < transfer->packets; ++*at) {
		if (critical && !(*at % 8) && !transfer->critical_map[*at / 8]) {
			*at += 7;
			continue;
		}
		if (transfer->tx.state[*at] != PACKET_WAITING && transfer->tx.state[*at] != PACKET_REWOUND)
			continue;
		if (!critical || bit_is_set(transfer->critical_map, *at))
			return true;
	}
	return false;
}

/* What goes first: critical packets, then new ones, then those that were lost. */
static struct dg_transfer *pick_packet(struct peer *peer, uint64_t *packet)
{
	struct dg_transfer *one;
	int queue;

	for (queue = 0; queue < 3; queue++) {
		for (one = peer->transfers.open; one; one = one->next_open) {
			if (one->receives || one->done)
				continue;
			if (queue == 0) {
				if (queue_pop(one, &one->tx.urgent, packet))
					return one;
				*packet = one->tx.next_critical;
				if (next_waiting(one, &one->tx.next_critical, true)) {
					*packet = one->tx.next_critical;
					return one;
				}
			} else if (queue == 1) {
				if (next_waiting(one, &one->tx.next_new, false)) {
					*packet = one->tx.next_new;
					return one;
				}
			} else if (queue_pop(one, &one->tx.lost, packet)) {
				return one;
			}
		}
	}
	return NULL;
}

static bool has_data(const struct peer *peer)
{
	const struct dg_transfer *one;

	for (one = peer->transfers.open; one; one = one->next_open)
		if (!one->receives && !one->done &&
		    (one->tx.next_new < one->packets || one->tx.lost.count || one->tx.urgent.count))
			return true;
	return false;
}

static uint64_t packet_ns(const struct peer *peer)
{
	return peer->segment * NS / congestion_pacing_rate(&peer->tx.congestion);
}

static bool has_room(const struct peer *peer)
{
	const struct congestion *cc = &peer->tx.congestion;

	return !peer->tx.inflight || !cc->ops->window_limited ||
	       peer->tx.inflight + peer->segment <= congestion_window(cc);
}

/* Whether a packet may leave now; else when it may be asked for again is noted. */
static bool may_send(struct peer *peer, uint64_t now)
{
	if (!peer->handshake.connected)
		return false;
	if (now < peer->tx.next_send) {
		peer->tx.paced = has_room(peer) && has_data(peer);
		return false;
	}
	if (!has_room(peer)) {
		peer->tx.paced = false;
		return false;
	}
	if (!flights_grow(peer)) {
		peer->tx.paced = false;
		peer->tx.next_send = now + NO_MEMORY;
		return false;
	}
	return true;
}

static void write_packet(const struct dg_core *core, const struct peer *peer, const struct dg_transfer *transfer,
			 uint64_t at, bool again, struct dg_packet *packet)
{
	const struct path *path = &peer->tx.congestion.path;
	const struct wire_data data = {
		.number = peer->tx.next_number,
		.round = transfer->round,
		.message = transfer->message,
		.bytes = transfer->bytes,
		.offset = at * transfer->segment,
		.rtprop_us = min_u64(path->rtprop / 1000 + 1, UINT32_MAX),
		.rate = min_u64(path_bandwidth(path) / 125, UINT32_MAX),
		.segment = transfer->segment,
		.length = transfer_packet_bytes(transfer, at),
	};

	peer_begin_datagram(core, peer, packet, DG_DATA,
			    (bit_is_set(transfer->critical_map, at) ? DG_CRITICAL : 0) | (again ? DG_RESENT : 0),
			    DG_DATA_HEADER);
	wire_write_data(packet, &data);
	packet->tag = transfer->tx.tags ? transfer->tx.tags[at] : 0;
	packet->payload = transfer->tx.data ? transfer->tx.data + data.offset : NULL;
	packet->payload_bytes = data.length;
}

/* The packet is in flight from now on. */
static void note_flight(struct peer *peer, struct dg_transfer *transfer, uint64_t at, uint32_t length, bool again,
			uint64_t now)
{
	uint64_t number = peer->tx.next_number++;

	peer->tx.flights[number % peer->tx.flight_slots] = (struct flight){
		.number = number,
		.sent = now,
		.serial = transfer->serial,
		.packet = at,
		.delivered = peer->tx.their_delivered,
		.arrived = peer->tx.their_arrived,
		.acked = peer->tx.acked_bytes,
		.bytes = length,
		.state = PACKET_IN_FLIGHT,
		.app_limited = peer->tx.app_limited_until,
		.was_idle = !peer->tx.inflight,
	};
	transfer->tx.state[at] = PACKET_IN_FLIGHT;
	if (!peer->tx.inflight)
		peer->tx.ack_at = now;
	if (!peer->tx.stuck_since)
		peer->tx.stuck_since = now;
	peer->tx.inflight += length;
	peer->tx.sent_bytes += length;
	if (again) {
		peer->tx.resent_packets++;
		transfer->tx.resent += length;
	}
	if (!transfer->first_ns)
		transfer->first_ns = now;
}

/* When the next packet may leave: a few at once, and more only if a timer was late. */
static void pace(struct peer *peer, uint64_t now)
{
	uint64_t apart = packet_ns(peer), credit = (AT_ONCE - 1) * apart;

	if (peer->tx.paced && credit < LATE)
		credit = LATE;
	if (now > credit && peer->tx.next_send < now - credit)
		peer->tx.next_send = now - credit;
	peer->tx.next_send += apart;
	peer->tx.burst = peer->tx.burst_at == now ? peer->tx.burst + 1 : 1;
	peer->tx.burst_at = now;
	if (peer->tx.burst > peer->tx.largest_burst)
		peer->tx.largest_burst = peer->tx.burst;
}

bool send_write_data(struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now)
{
	struct dg_transfer *transfer;
	uint64_t at;
	bool again;

	if (!may_send(peer, now))
		return false;
	transfer = pick_packet(peer, &at);
	if (!transfer) {
		peer->tx.paced = false;
		/* What is measured from here on is what there was to send. */
		peer->tx.app_limited_until = peer->tx.acked_bytes + peer->tx.inflight;
		if (!peer->tx.app_limited_until)
			peer->tx.app_limited_until = 1;
		return false;
	}
	again = transfer->tx.state[at] != PACKET_WAITING;
	write_packet(core, peer, transfer, at, again, packet);
	note_flight(peer, transfer, at, packet->payload_bytes, again, now);
	pace(peer, now);
	return true;
}

uint64_t send_next_at(const struct peer *peer)
{
	if (!has_data(peer) || !has_room(peer))
		return DG_NEVER;
	return peer->tx.next_send + min_u64(packet_ns(peer) * (AT_ONCE - 1), NS / 1000);
}
