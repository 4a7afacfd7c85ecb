// SPDX-License-Identifier: BSD-3-Clause
#include "recovery.h"

#include <stdlib.h>

#include "bytes.h"
#include "congestion.h"

#define MOST_FLIGHTS (1 << 22)

bool recovery_init(struct peer *peer)
{
	peer->tx.flight_slots = 64;
	peer->tx.flights = calloc(peer->tx.flight_slots, sizeof(*peer->tx.flights));
	return peer->tx.flights;
}

bool flights_grow(struct peer *peer)
{
	uint64_t i, wider = 2 * peer->tx.flight_slots;
	struct flight *made;

	if (peer->tx.next_number - peer->tx.oldest < peer->tx.flight_slots)
		return true;
	if (peer->tx.flight_slots >= MOST_FLIGHTS)
		return false;
	made = calloc(wider, sizeof(*made));
	if (!made)
		return false;
	for (i = 0; i < peer->tx.flight_slots; i++)
		if (peer->tx.flights[i].state != PACKET_WAITING)
			made[peer->tx.flights[i].number % wider] = peer->tx.flights[i];
	free(peer->tx.flights);
	peer->tx.flights = made;
	peer->tx.flight_slots = wider;
	return true;
}

void recovery_scale_probe(const struct dg_core *core, struct peer *peer)
{
	uint64_t whole =
		peer->tx.round_bytes > peer->tx.last_round_bytes ? peer->tx.round_bytes : peer->tx.last_round_bytes;

	if (core->settings.slope_permille && whole)
		peer->tx.congestion.probe_permille =
			core->settings.offset_permille +
			core->settings.slope_permille * min_u64(peer->tx.round_acked, whole) / whole;
}

bool queue_push(struct packet_queue *queue, uint64_t packet)
{
	if (queue->count == queue->size) {
		uint64_t wider = queue->size ? 2 * queue->size : 16, i;
		uint64_t *made = malloc(wider * sizeof(*made));

		if (!made)
			return false;
		for (i = 0; i < queue->count; i++)
			made[(queue->first + i) % wider] = queue->packets[(queue->first + i) % queue->size];
		free(queue->packets);
		queue->packets = made;
		queue->size = wider;
	}
	queue->packets[(queue->first + queue->count) % queue->size] = packet;
	queue->count++;
	return true;
}

bool queue_pop(struct dg_transfer *transfer, struct packet_queue *queue, uint64_t *packet)
{
	while (queue->count) {
		*packet = queue->packets[queue->first % queue->size];
		queue->first = (queue->first + 1) % queue->size;
		queue->count--;
		if (transfer->tx.state[*packet] == PACKET_LOST)
			return true;
	}
	return false;
}

static struct dg_transfer *flight_transfer(struct peer *peer, const struct flight *flight)
{
	struct dg_transfer *one = peer->transfers.recent;

	if (one && one->serial == flight->serial)
		return one;
	for (one = peer->transfers.open; one; one = one->next_open)
		if (one->serial == flight->serial)
			return peer->transfers.recent = one;
	return NULL; /* it has ended */
}

static void mark_lost(struct peer *peer, struct flight *flight)
{
	struct dg_transfer *transfer = flight_transfer(peer, flight);
	uint64_t packet = flight->packet, *next;
	bool queued;

	flight->state = PACKET_LOST;
	peer->tx.inflight -= flight->bytes;
	if (!transfer || transfer->done || transfer->tx.state[packet] != PACKET_IN_FLIGHT)
		return;
	if (bit_is_set(transfer->critical_map, packet)) {
		queued = queue_push(&transfer->tx.urgent, packet);
		next = &transfer->tx.next_critical;
	} else {
		queued = queue_push(&transfer->tx.lost, packet);
		next = &transfer->tx.next_new;
	}
	transfer->tx.state[packet] = queued ? PACKET_LOST : PACKET_REWOUND;
	if (queued)
		return;
	*next = min_u64(*next, packet);
	transfer->tx.next_new = min_u64(transfer->tx.next_new, packet); /* has_data (send.c) looks there */
}

static void mark_acked(struct dg_core *core, struct peer *peer, struct flight *flight, uint64_t now)
{
	struct dg_transfer *transfer = flight_transfer(peer, flight);

	if (flight->state == PACKET_IN_FLIGHT)
		peer->tx.inflight -= flight->bytes;
	flight->state = PACKET_ACKED;
	peer->tx.acked_bytes += flight->bytes;
	if (!transfer || transfer->done || transfer->tx.state[flight->packet] == PACKET_ACKED)
		return;
	transfer->tx.state[flight->packet] = PACKET_ACKED;
	transfer->tx.acked += flight->bytes;
	if (transfer->round == peer->tx.newest_round)
		peer->tx.round_acked += flight->bytes;
	recovery_scale_probe(core, peer);
	transfer->last_ns = now;
	if (transfer->tx.acked == transfer->bytes) {
		transfer->delivered = transfer->bytes;
		transfer_finish_sent(core, transfer, DG_COMPLETE);
	}
}

static struct flight *flight_find(const struct peer *peer, uint64_t number)
{
	struct flight *flight = &peer->tx.flights[number % peer->tx.flight_slots];

	if (number >= peer->tx.next_number || flight->number != number || flight->state == PACKET_WAITING)
		return NULL;
	return flight;
}

static void find_losses(struct dg_core *core, struct peer *peer)
{
	uint64_t until = peer->tx.largest_acked + 1, reorder = core->settings.reorder;

	until = until > reorder ? until - reorder : 0;
	/* Whoever waits for a timer to find losses forgets at least what has been heard of. */
	while (peer->tx.congestion.ops->timer_alone_finds_losses && peer->tx.oldest <= peer->tx.largest_acked) {
		struct flight *flight = flight_find(peer, peer->tx.oldest);

		if (flight && flight->state == PACKET_IN_FLIGHT)
			break;
		peer->tx.oldest++;
	}
	for (; peer->tx.oldest < until; peer->tx.oldest++) {
		struct flight *flight = flight_find(peer, peer->tx.oldest);

		if (flight && flight->state == PACKET_IN_FLIGHT)
			mark_lost(peer, flight);
	}
}

/* What the largest number of an ACK measures of the path. */
static void measure(struct ack_sample *sample, const struct flight *flight, const struct wire_ack *ack,
		    uint64_t arrived)
{
	if (ack->arrived && arrived > flight->sent + ack->delay && flight->state == PACKET_IN_FLIGHT)
		sample->rtt = arrived - flight->sent - ack->delay;
	if (sample->rtt)
		sample->held = sample->now - flight->sent - sample->rtt;
	if (ack->arrived && flight->arrived && ack->arrived > flight->arrived && ack->delivered > flight->delivered)
		sample->bandwidth = muldiv(ack->delivered - flight->delivered, NS, ack->arrived - flight->arrived);
	sample->app_limited = flight->app_limited;
	sample->was_idle = flight->was_idle;
	sample->acked_when_sent = flight->acked;
}

void recovery_take_ack(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes, uint64_t arrived,
		       uint64_t now)
{
	struct ack_sample sample = { .now = now };
	struct flight *flight, first;
	struct wire_ack ack;
	uint32_t i;

	if (!wire_read_ack(datagram, bytes, &ack) || ack.largest >= peer->tx.next_number) {
		peer->rx.malformed++;
		return;
	}
	flight = flight_find(peer, ack.largest);
	if (flight && flight->state != PACKET_ACKED) {
		first = *flight;
		mark_acked(core, peer, flight, now);
		sample.packets++;
		measure(&sample, &first, &ack, arrived);
	}
	if (ack.arrived > peer->tx.their_arrived) {
		peer->tx.their_arrived = ack.arrived;
		peer->tx.their_delivered = ack.delivered;
	}
	for (i = 0; i < 8U * ack.map_bytes && i < ack.largest; i++) {
		if (!bit_is_set(ack.map, i))
			continue;
		flight = flight_find(peer, ack.largest - 1 - i);
		if (flight && flight->state != PACKET_ACKED) {
			mark_acked(core, peer, flight, now);
			sample.packets++;
		}
	}
	if (!sample.packets)
		return;
	if ((int16_t)(ack.marked - peer->tx.their_marked) > 0) {
		sample.marked = (uint16_t)(ack.marked - peer->tx.their_marked);
		peer->tx.their_marked = ack.marked;
	}
	if (!peer->tx.any_acked || ack.largest > peer->tx.largest_acked)
		peer->tx.largest_acked = ack.largest;
	peer->tx.any_acked = true;
	find_losses(core, peer);
	peer->tx.stuck_since = 0;
	peer->tx.ack_at = now;
	peer->tx.backoff = 0;
	if (peer->tx.app_limited_until && peer->tx.acked_bytes > peer->tx.app_limited_until)
		peer->tx.app_limited_until = 0;
	sample.acked = peer->tx.acked_bytes;
	sample.inflight = peer->tx.inflight;
	congestion_on_ack(&peer->tx.congestion, &sample);
}

uint64_t recovery_timeout_at(const struct dg_core *core, const struct peer *peer)
{
	uint64_t timeout = path_timeout(&peer->tx.congestion.path), most = core->settings.silence_ns / 8;

	return peer->tx.ack_at + min_u64(timeout << min_u64(peer->tx.backoff, 6), most > timeout ? most : timeout);
}

void recovery_time_out(struct peer *peer, uint64_t now)
{
	uint64_t old = path_timeout(&peer->tx.congestion.path), number;

	for (number = peer->tx.oldest; number < peer->tx.next_number; number++) {
		struct flight *flight = flight_find(peer, number);

		if (flight && flight->state == PACKET_IN_FLIGHT && flight->sent + old <= now)
			mark_lost(peer, flight);
	}
	peer->tx.backoff++;
	peer->tx.ack_at = now;
}
