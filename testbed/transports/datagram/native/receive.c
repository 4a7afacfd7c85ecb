// SPDX-License-Identifier: BSD-3-Clause
#include "receive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "closing.h"
#include "close_report.h"
#include "liveness.h"

#define SEEN 4096U /* packet numbers that a receiver remembers */
#define TOLD_AGAIN 128U /* packets, by every ACK */
#define ACKS_A_ROUND_TRIP 8 /* at least, unless packets are rarer, or the receiver rests for longer */
#define ACK_WAITS 1000000ULL /* ns at most */
#define BUSY_EVERY (NS / 10) /* at most as often a peer is told that its packets cannot be taken yet */

bool receive_init(struct peer *peer)
{
	peer->rx.seen = calloc(SEEN / 64, sizeof(*peer->rx.seen));
	return peer->rx.seen;
}

struct dg_transfer *dg_receive(struct dg_core *core, uint32_t from, uint32_t round, uint32_t message, uint64_t bytes,
			       uint8_t *into, const struct dg_closing_rule *rule, const struct dg_span *critical,
			       size_t criticals, uint64_t now)
{
	struct dg_transfer *transfer;
	struct round_clock *clock = NULL;
	struct peer *peer;
	uint64_t packet;

	if (!transfer_may_post(core, from, bytes))
		return NULL;
	peer = &core->peers[from];
	transfer = transfer_find(peer, true, round, message);
	if (transfer && (transfer->posted || transfer->bytes != bytes)) {
		errno = EEXIST;
		return NULL;
	}
	if (rule->group) {
		clock = round_clock_join(core, rule->group, round);
		if (!clock) {
			errno = ENOMEM;
			return NULL;
		}
	}
	if (transfer) {
		transfer_unreserve(transfer);
	} else {
		transfer = transfer_add(core, peer, true, round, message, bytes, false);
		if (!transfer) {
			round_clock_release(core, clock);
			errno = ENOMEM;
			return NULL;
		}
	}
	if (round > peer->rx.newest_round)
		peer->rx.newest_round = round;
	transfer->posted = true;
	transfer->held = true;
	peer->transfers.unfinished++;
	transfer->rx.into = into;
	transfer->rx.rule = *rule;
	if (closing_depends_on_time(rule))
		transfer_open(transfer);
	if (into && transfer->rx.kept) {
		for (packet = 0; packet < transfer->packets; packet++) {
			uint64_t offset = packet * transfer->segment;

			if (bit_is_set(transfer->delivered_map, packet))
				memcpy(into + offset, transfer->rx.kept + offset,
				       min_u64(transfer->segment, bytes - offset));
		}
	}
	free(transfer->rx.kept);
	transfer->rx.kept = NULL;
	transfer_mark_critical(transfer, critical, criticals);
	transfer->rx.clock = clock;
	if (transfer->rx.began)
		transfer_begin_clock(transfer, transfer->rx.began);
	closing_rule_decide(core, transfer, now);
	if (peer->liveness.gone && !transfer->done)
		transfer_finish(core, transfer, DG_GONE);
	liveness_watch(core, peer, now);
	transfer_forget_old(core, peer);
	return transfer;
}

static void note_number(const struct dg_core *core, struct peer *peer, uint64_t number, uint64_t arrived, uint64_t now)
{
	uint64_t wait = min_u64(peer->rx.their_rtprop / ACKS_A_ROUND_TRIP, ACK_WAITS), i;

	if (!peer->rx.any_seen || number > peer->rx.largest) {
		if (!peer->rx.any_seen || number - peer->rx.largest >= SEEN)
			memset(peer->rx.seen, 0, SEEN / 8);
		else
			for (i = peer->rx.largest + 1; i < number; i++)
				peer->rx.seen[i % SEEN / 64] &= ~(1ULL << i % 64);
		peer->rx.any_seen = true;
		peer->rx.largest = number;
		peer->rx.largest_arrived = arrived;
		peer->rx.delivered_at_largest = peer->rx.delivered_bytes;
	} else if (peer->rx.largest - number >= SEEN) {
		return; /* too old to be told of: the sender has long counted it as lost */
	}
	peer->rx.seen[number % SEEN / 64] |= 1ULL << number % 64;
	if (!peer->rx.unacked)
		peer->rx.ack_due = now + (wait > core->settings.coalesce_ns ? wait : core->settings.coalesce_ns);
	if (!peer->rx.unacked++ || number < peer->rx.unacked_least)
		peer->rx.unacked_least = number;
}

uint64_t receive_ack_due(const struct dg_core *core, const struct peer *peer)
{
	if (!peer->rx.unacked)
		return DG_NEVER;
	return peer->rx.unacked >= core->settings.acks ? 0 : peer->rx.ack_due;
}

/* A message of which something comes before it is posted; NULL: it would take too much memory. */
static struct dg_transfer *add_unposted(struct dg_core *core, struct peer *peer, uint32_t round, uint32_t message,
					uint64_t bytes)
{
	uint64_t bitmap = packet_count(bytes, peer->segment) / 8 + 1;
	uint64_t needed = sizeof(struct dg_transfer) + 2 * bitmap + (core->settings.discards ? 0 : bytes);
	struct dg_transfer *made;

	if (!transfer_may_reserve(peer, needed))
		return NULL;
	made = transfer_add(core, peer, true, round, message, bytes, false);
	if (made)
		transfer_reserve(made, needed);
	return made;
}

/* A packet is not acknowledged, so that it comes again; its sender is told that it has come. */
static void put_off(struct peer *peer, uint64_t now)
{
	if (peer->rx.busy_told_at && now - peer->rx.busy_told_at < BUSY_EVERY)
		return;
	peer->rx.busy_due = true;
	peer->rx.busy_told_at = now;
}

/* The payload of a packet that has not come before; false: there is no memory for it. */
static bool store_packet(const struct dg_core *core, struct dg_transfer *transfer, const struct wire_data *data)
{
	if (transfer->rx.into)
		memcpy(transfer->rx.into + data->offset, data->payload, data->length);
	if (transfer->posted || core->settings.discards)
		return true;
	if (!transfer->rx.kept)
		transfer->rx.kept = malloc(data->bytes);
	if (!transfer->rx.kept)
		return false;
	memcpy(transfer->rx.kept + data->offset, data->payload, data->length);
	return true;
}

static void count_packet(struct peer *peer, struct dg_transfer *transfer, const struct wire_data *data, uint64_t packet,
			 uint64_t arrived)
{
	bit_set(transfer->delivered_map, packet);
	transfer->delivered += data->length;
	peer->rx.delivered_bytes += data->length;
	if (transfer->posted && bit_is_set(transfer->critical_map, packet))
		transfer->critical_left--;
	if (!transfer->first_ns)
		transfer->first_ns = arrived;
	transfer->last_ns = arrived;
	transfer_begin_clock(transfer, arrived);
}

void receive_data(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes, uint64_t arrived,
		  uint64_t now)
{
	struct dg_transfer *transfer;
	struct wire_data data;
	uint64_t packet;

	if (!wire_read_data(datagram, bytes, &data) || data.segment != peer->segment || !data.bytes ||
	    data.bytes > MOST_BYTES || data.offset >= data.bytes || data.offset % data.segment ||
	    data.length != min_u64(data.segment, data.bytes - data.offset) ||
	    data.number > peer->rx.largest + (1ULL << 32))
		goto malformed;
	peer->rx.handed_over++;
	if (data.round + ROUNDS_KEPT < peer->rx.newest_round) {
		peer->rx.stale++;
		return;
	}
	transfer = transfer_find(peer, true, data.round, data.message);
	if (!transfer) {
		transfer = add_unposted(core, peer, data.round, data.message, data.bytes);
		if (!transfer) {
			put_off(peer, now);
			return;
		}
	}
	if (transfer->bytes != data.bytes)
		goto malformed;
	if (data.rtprop_us && data.rate) {
		peer->rx.their_rtprop = data.rtprop_us * 1000ULL;
		peer->rx.their_rate = data.rate * 125ULL;
	}
	packet = data.offset / data.segment;
	if (!bit_is_set(transfer->delivered_map, packet)) {
		if (transfer->done) {
			close_report_hasten(transfer, now);
			return; /* not acknowledged: it is not delivered */
		}
		if (!store_packet(core, transfer, &data)) {
			put_off(peer, now);
			return;
		}
		count_packet(peer, transfer, &data, packet, arrived);
	}
	note_number(core, peer, data.number, arrived, now);
	closing_rule_decide(core, transfer, now);
	return;
malformed:
	peer->rx.malformed++;
}

bool receive_write_ack(const struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now)
{
	uint64_t bits = peer->rx.largest - peer->rx.unacked_least, delay = now - peer->rx.largest_arrived;
	struct wire_ack ack = {
		.largest = peer->rx.largest,
		.delivered = peer->rx.delivered_at_largest,
		.arrived = peer->rx.largest_arrived,
		.delay = min_u64(now > peer->rx.largest_arrived ? delay : 0, UINT32_MAX),
		.marked = peer->rx.marked,
	};
	uint64_t i, number;

	if (receive_ack_due(core, peer) > now)
		return false;
	if (bits < TOLD_AGAIN)
		bits = TOLD_AGAIN;
	bits = min_u64(min_u64(bits, peer->rx.largest), SEEN - 1);
	ack.map_bytes = (bits + 7) / 8;
	peer_begin_datagram(core, peer, packet, DG_ACK, 0, DG_ACK_HEADER + ack.map_bytes);
	wire_write_ack(packet, &ack);
	for (i = 0; i < bits; i++) {
		number = peer->rx.largest - 1 - i;
		if (peer->rx.seen[number % SEEN / 64] >> number % 64 & 1)
			bit_set(packet->header + DG_ACK_HEADER, i);
	}
	peer->rx.unacked = 0;
	return true;
}
