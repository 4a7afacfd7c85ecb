// SPDX-License-Identifier: BSD-3-Clause
#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "prng.h"

#define MOST_UNPOSTED 4096 /* messages of a peer that arrive before they are expected */
#define UNPOSTED_BYTES (256ULL << 20) /* of memory that all of these together may reserve */

uint64_t packet_count(uint64_t bytes, uint32_t segment)
{
	return (bytes + segment - 1) / segment;
}

uint64_t transfer_packet_bytes(const struct dg_transfer *transfer, uint64_t packet)
{
	uint64_t offset = packet * transfer->segment;

	return min_u64(transfer->segment, transfer->bytes - offset);
}

/* The salt is secret: a peer that picks its messages' names cannot fill one bucket with them. */
static uint32_t bucket_of(const struct peer *peer, bool receives, uint32_t round, uint32_t message)
{
	uint64_t name = (uint64_t)round << 32 | message;

	return prng_mix(prng_mix(name ^ peer->transfers.salt) + receives) % BUCKETS;
}

struct dg_transfer *transfer_find(const struct peer *peer, bool receives, uint32_t round, uint32_t message)
{
	struct dg_transfer *one;

	for (one = peer->transfers.buckets[bucket_of(peer, receives, round, message)]; one; one = one->next_alike)
		if (one->receives == receives && one->round == round && one->message == message)
			return one;
	return NULL;
}

bool transfer_may_post(const struct dg_core *core, uint32_t rank, uint64_t bytes)
{
	if (rank >= core->settings.ranks || !bytes || bytes > MOST_BYTES) {
		errno = EINVAL;
		return false;
	}
	/* Before the handshake it is not known what a packet holds. What is gone ends at once. */
	if (!core->peers[rank].handshake.connected && !core->peers[rank].liveness.gone) {
		errno = ENOTCONN;
		return false;
	}
	return true;
}

void transfer_free(struct dg_core *core, struct dg_transfer *transfer)
{
	round_clock_release(core, transfer->rx.clock);
	free(transfer->critical_map);
	free(transfer->delivered_map);
	free(transfer->tx.tags);
	free(transfer->tx.state);
	free(transfer->tx.lost.packets);
	free(transfer->tx.urgent.packets);
	free(transfer->rx.kept);
	free(transfer);
}

bool transfer_allocate_maps(struct dg_transfer *transfer)
{
	uint64_t bytes = transfer->packets / 8 + 1;
	uint8_t *arrived;

	if (!transfer->critical_map)
		transfer->critical_map = calloc(1, bytes);
	if (!transfer->receives && !transfer->tx.state)
		transfer->tx.state = calloc(1, transfer->packets);
	if (!transfer->critical_map || (!transfer->receives && !transfer->tx.state))
		return false;
	if (transfer->delivered_map_bytes == bytes)
		return true;
	arrived = calloc(1, bytes);
	if (!arrived)
		return false;
	if (transfer->delivered_map)
		memcpy(arrived, transfer->delivered_map, transfer->delivered_map_bytes);
	free(transfer->delivered_map);
	transfer->delivered_map = arrived;
	transfer->delivered_map_bytes = bytes;
	return true;
}

struct dg_transfer *transfer_add(struct dg_core *core, struct peer *peer, bool receives, uint32_t round,
				 uint32_t message, uint64_t bytes, bool bare)
{
	struct dg_transfer *made = calloc(1, sizeof(*made)), **bucket;

	if (!made)
		return NULL;
	made->peer = peer;
	made->receives = receives;
	made->round = round;
	made->message = message;
	made->bytes = bytes;
	made->segment = peer->segment;
	made->packets = packet_count(bytes, peer->segment);
	made->rx.tell_at = DG_NEVER;
	if (!bare && !transfer_allocate_maps(made)) {
		transfer_free(core, made);
		return NULL;
	}
	made->serial = ++core->serial;
	*peer->transfers.last = made;
	peer->transfers.last = &made->next;
	bucket = &peer->transfers.buckets[bucket_of(peer, receives, round, message)];
	made->next_alike = *bucket;
	*bucket = made;
	return made;
}

bool transfer_may_reserve(const struct peer *peer, uint64_t bytes)
{
	return peer->transfers.unposted < MOST_UNPOSTED && bytes <= UNPOSTED_BYTES - peer->transfers.reserved;
}

void transfer_reserve(struct dg_transfer *transfer, uint64_t bytes)
{
	transfer->reserved = bytes;
	transfer->peer->transfers.reserved += bytes;
	transfer->peer->transfers.unposted++;
}

void transfer_unreserve(struct dg_transfer *transfer)
{
	transfer->peer->transfers.reserved -= transfer->reserved;
	transfer->peer->transfers.unposted--;
	transfer->reserved = 0;
}

void transfer_open(struct dg_transfer *transfer)
{
	struct dg_transfer **at = &transfer->peer->transfers.open;

	while (*at && (*at)->serial < transfer->serial)
		at = &(*at)->next_open;
	if (*at == transfer)
		return;
	transfer->next_open = *at;
	*at = transfer;
}

void transfer_drop(struct dg_core *core, struct dg_transfer *transfer)
{
	struct peer *peer = transfer->peer;
	struct dg_transfer **at = &peer->transfers.all;

	while (*at != transfer)
		at = &(*at)->next;
	*at = transfer->next;
	if (!*at)
		peer->transfers.last = at;
	at = &peer->transfers.buckets[bucket_of(peer, transfer->receives, transfer->round, transfer->message)];
	while (*at != transfer)
		at = &(*at)->next_alike;
	*at = transfer->next_alike;
	for (at = &peer->transfers.open; *at; at = &(*at)->next_open) {
		if (*at == transfer) {
			*at = transfer->next_open;
			break;
		}
	}
	if (peer->transfers.recent == transfer)
		peer->transfers.recent = NULL;
	if (!transfer->posted)
		transfer_unreserve(transfer);
	transfer_free(core, transfer);
}

void transfer_mark_critical(struct dg_transfer *transfer, const struct dg_span *critical, size_t criticals)
{
	uint64_t packet;
	size_t i;

	bit_set(transfer->critical_map, 0);
	bit_set(transfer->critical_map, transfer->packets - 1);
	for (i = 0; i < criticals; i++) {
		uint64_t end;

		if (!critical[i].bytes || critical[i].offset >= transfer->bytes)
			continue;
		end = critical[i].offset + min_u64(critical[i].bytes, transfer->bytes - critical[i].offset);
		for (packet = critical[i].offset / transfer->segment; packet * transfer->segment < end; packet++)
			bit_set(transfer->critical_map, packet);
	}
	for (packet = 0; packet < transfer->packets; packet++)
		if (bit_is_set(transfer->critical_map, packet) && !bit_is_set(transfer->delivered_map, packet))
			transfer->critical_left++;
}

uint64_t transfer_clock_began(const struct dg_transfer *transfer)
{
	return transfer->rx.clock ? transfer->rx.clock->began : transfer->rx.began;
}

void transfer_begin_clock(struct dg_transfer *transfer, uint64_t when)
{
	struct round_clock *clock = transfer->rx.clock;

	if (!transfer->rx.began || when < transfer->rx.began)
		transfer->rx.began = when;
	if (clock && (!clock->began || when < clock->began))
		clock->began = when;
}

void transfer_zero_holes(struct dg_transfer *transfer)
{
	uint64_t packet;

	if (!transfer->rx.into || transfer->delivered == transfer->bytes || transfer->rx.rule.keep)
		return;
	for (packet = 0; packet < transfer->packets; packet++) {
		uint64_t offset = packet * transfer->segment;

		if (!bit_is_set(transfer->delivered_map, packet))
			memset(transfer->rx.into + offset, 0, min_u64(transfer->segment, transfer->bytes - offset));
	}
}

void transfer_finish(struct dg_core *core, struct dg_transfer *transfer, enum dg_close_reason reason)
{
	if (transfer->posted && !transfer->done)
		transfer->peer->transfers.unfinished--;
	transfer->done = true;
	transfer->reason = reason;
	core->ended++;
}

void transfer_finish_sent(struct dg_core *core, struct dg_transfer *transfer, enum dg_close_reason reason)
{
	transfer_finish(core, transfer, reason);
	if (!transfer->held && transfer->posted)
		transfer_drop(core, transfer);
}

void transfer_forget_old(struct dg_core *core, struct peer *peer)
{
	struct dg_transfer *one = peer->transfers.all, *next;

	for (; one; one = next) {
		uint64_t newest = one->receives ? peer->rx.newest_round : peer->tx.newest_round;

		next = one->next;
		if (one->round + ROUNDS_KEPT >= newest)
			continue;
		if (!one->posted || (one->done && !one->held && one->rx.tell_at == DG_NEVER))
			transfer_drop(core, one);
	}
}

size_t dg_holes(const struct dg_transfer *transfer, struct dg_span *holes, size_t most)
{
	uint64_t packet = 0;
	size_t count = 0;

	if (transfer->reason == DG_COMPLETE)
		return 0;
	while (packet < transfer->packets) {
		uint64_t first = packet, bytes = 0;

		while (packet < transfer->packets && !bit_is_set(transfer->delivered_map, packet))
			bytes += transfer_packet_bytes(transfer, packet++);
		if (packet == first) {
			packet++;
			continue;
		}
		if (count < most)
			holes[count] = (struct dg_span){ first * transfer->segment, bytes };
		count++;
	}
	return count;
}

void dg_result(const struct dg_transfer *transfer, struct dg_result *result)
{
	*result = (struct dg_result){
		.bytes = transfer->bytes,
		.delivered = transfer->delivered,
		.resent = transfer->tx.resent,
		.first_ns = transfer->first_ns,
		.last_ns = transfer->last_ns,
		.clock_ns = transfer_clock_began(transfer),
		.holes = transfer->done ? dg_holes(transfer, NULL, 0) : 0,
		.reason = transfer->reason,
		.done = transfer->done,
		.gone = transfer->peer->liveness.because_of,
		.stalled = transfer->peer->liveness.stalled,
	};
}

bool dg_done(const struct dg_transfer *transfer)
{
	return transfer->done;
}

void dg_release(struct dg_core *core, struct dg_transfer *transfer)
{
	transfer->held = false;
	transfer->rx.into = NULL;
	if (!transfer->receives && transfer->done)
		transfer_drop(core, transfer);
	else
		transfer->tx.data = NULL;
}

uint64_t dg_ended(const struct dg_core *core)
{
	return core->ended;
}
