// SPDX-License-Identifier: BSD-3-Clause
#include "close_report.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"

#define CLOSE_BYTES (DG_LONGEST_CONTROL - DG_CLOSE_HEADER)

void close_report_confirm(struct peer *peer, uint32_t round, uint32_t message, bool handed)
{
	uint32_t at = (peer->tx.confirm_first + peer->tx.confirm_count) % CONFIRMATIONS;

	if (peer->tx.confirm_count == CONFIRMATIONS)
		return; /* it will be told again */
	peer->tx.confirmations[at].round = round;
	peer->tx.confirmations[at].message = message;
	peer->tx.confirmations[at].handed = handed;
	peer->tx.confirm_count++;
}

bool close_report_write_confirmation(const struct dg_core *core, struct peer *peer, struct dg_packet *packet)
{
	uint32_t first = peer->tx.confirm_first;

	if (!peer->tx.confirm_count)
		return false;
	peer_begin_datagram(core, peer, packet, DG_CLOSED, peer->tx.confirmations[first].handed ? DG_HANDED : 0,
			    DG_CLOSED_BYTES);
	wire_write_closed(packet, peer->tx.confirmations[first].round, peer->tx.confirmations[first].message);
	peer->tx.confirm_first = (first + 1) % CONFIRMATIONS;
	peer->tx.confirm_count--;
	return true;
}

/* Room for so many bytes of what a close says; of a message that is not posted it grows with what is said. */
static bool grow_delivered_map(struct dg_transfer *transfer, uint64_t bytes)
{
	uint64_t whole = transfer->packets / 8 + 1, wider = min_u64(2 * bytes, whole);
	uint8_t *made;

	if (bytes <= transfer->delivered_map_bytes)
		return true;
	made = realloc(transfer->delivered_map, wider);
	if (!made)
		return false;
	memset(made + transfer->delivered_map_bytes, 0, wider - transfer->delivered_map_bytes);
	transfer->delivered_map = made;
	transfer->delivered_map_bytes = wider;
	return true;
}

/* The next bits of which packets were delivered; false: there is no memory for them. */
static bool take_delivered_bits(struct dg_transfer *transfer, const uint8_t *bits, uint64_t bytes)
{
	uint64_t at = transfer->tx.told / 8, end = (transfer->packets + 7) / 8;

	bytes = min_u64(bytes, end - at);
	if (!grow_delivered_map(transfer, at + bytes))
		return false;
	for (end = at + bytes; at < end; at++, bits++) {
		uint64_t left = transfer->packets - 8 * at;
		uint8_t byte = left < 8 ? *bits & ((1U << left) - 1) : *bits;

		transfer->delivered_map[at] = byte;
		transfer->tx.told_bytes += (uint64_t)__builtin_popcount(byte) * transfer->segment;
		if (left <= 8 && byte >> (left - 1) & 1) /* the last packet may be shorter */
			transfer->tx.told_bytes -=
				transfer->segment - transfer_packet_bytes(transfer, transfer->packets - 1);
	}
	transfer->tx.told = 8 * end;
	return true;
}

/* Its receiver has closed a message that is not posted here; NULL: it would take too much memory. */
static struct dg_transfer *add_closed(struct dg_core *core, struct peer *peer, uint32_t round, uint32_t message,
				      uint64_t bytes)
{
	uint64_t needed = sizeof(struct dg_transfer) + packet_count(bytes, peer->segment) / 8 + 1;
	struct dg_transfer *made;

	if (!bytes || bytes > MOST_BYTES || !transfer_may_reserve(peer, needed))
		return NULL;
	made = transfer_add(core, peer, false, round, message, bytes, true);
	if (made)
		transfer_reserve(made, needed);
	return made;
}

/* What was lost, in pieces that come in order; one that was lost comes again. Whether the last one has come. */
static bool take_piece(struct dg_core *core, struct peer *peer, struct dg_transfer **found,
		       const struct wire_close *close, uint64_t now)
{
	uint64_t packets = packet_count(close->bytes, peer->segment);
	struct dg_transfer *transfer = *found;

	if (close->first != (transfer ? transfer->tx.told : 0) ||
	    close->first + 8ULL * close->map_bytes < min_u64(packets, close->first + 8ULL))
		return false;
	if (!transfer) /* closed before it was sent */
		transfer = add_closed(core, peer, close->round, close->message, close->bytes);
	*found = transfer;
	if (!transfer || !take_delivered_bits(transfer, close->map, close->map_bytes))
		return false;
	transfer->last_ns = now;
	if (transfer->tx.told < packets)
		return false;
	if (transfer->tx.told_bytes != close->delivered) {
		transfer->tx.told = 0;
		transfer->tx.told_bytes = 0;
		peer->rx.malformed++;
		return false;
	}
	return true;
}

void close_report_take(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes, uint64_t now)
{
	struct dg_transfer *transfer;
	struct wire_close close;
	bool whole, complete;

	if (!wire_read_close(datagram, bytes, &close) || close.reason > DG_GONE || close.delivered > close.bytes ||
	    close.first % 8)
		goto malformed;
	transfer = transfer_find(peer, false, close.round, close.message);
	if (transfer ? transfer->done :
		       close.reason == DG_COMPLETE || close.round + ROUNDS_KEPT < peer->tx.newest_round) {
		close_report_confirm(peer, close.round, close.message, transfer && transfer->posted);
		return;
	}
	whole = close.delivered == close.bytes;
	complete = close.reason == DG_COMPLETE;
	if ((transfer && transfer->bytes != close.bytes) || whole != complete)
		goto malformed;
	peer->tx.stuck_since = 0;
	if (!complete && !take_piece(core, peer, &transfer, &close, now))
		return;
	transfer->last_ns = now;
	transfer->delivered = close.delivered;
	close_report_confirm(peer, close.round, close.message, transfer->posted);
	transfer_finish_sent(core, transfer, close.reason);
	return;
malformed:
	peer->rx.malformed++;
}

void close_report_begin(struct dg_transfer *transfer, uint64_t now)
{
	transfer->rx.tell_at = now;
	transfer->rx.tell_next = 0;
	transfer->rx.telling = true;
	transfer_open(transfer);
}

void close_report_hasten(struct dg_transfer *transfer, uint64_t now)
{
	if (transfer->rx.tell_at != DG_NEVER && !transfer->rx.telling &&
	    transfer->rx.tell_at > now + transfer->peer->tx.congestion.path.rtt)
		transfer->rx.tell_at = now + transfer->peer->tx.congestion.path.rtt;
}

void close_report_take_confirmation(struct peer *peer, uint16_t flags, const uint8_t *datagram, size_t bytes)
{
	struct dg_transfer *transfer;
	uint32_t round, message;

	if (!wire_read_closed(datagram, bytes, &round, &message))
		return;
	transfer = transfer_find(peer, true, round, message);
	if (transfer && transfer->done) {
		transfer->rx.tell_at = DG_NEVER;
		transfer->rx.telling = false;
	}
	peer->rx.handed_over += !!(flags & DG_HANDED);
}

/* The next piece. */
static void write_piece(const struct dg_core *core, struct dg_transfer *transfer, struct dg_packet *packet,
			uint64_t now)
{
	bool complete = transfer->reason == DG_COMPLETE;
	uint64_t first = transfer->rx.tell_next, left = (transfer->packets + 7) / 8 - first / 8;
	struct peer *peer = transfer->peer;
	const struct wire_close close = {
		.round = transfer->round,
		.message = transfer->message,
		.bytes = transfer->bytes,
		.delivered = transfer->delivered,
		.reason = transfer->reason,
		.map_bytes = complete ? 0 : min_u64(left, CLOSE_BYTES),
		.first = first,
		.map = transfer->delivered_map + first / 8,
	};

	peer_begin_datagram(core, peer, packet, DG_CLOSE, 0, DG_CLOSE_HEADER + close.map_bytes);
	wire_write_close(packet, &close);
	transfer->rx.tell_next += 8ULL * close.map_bytes;
	if (!complete && transfer->rx.tell_next < transfer->packets)
		return;
	transfer->rx.tell_next = 0;
	transfer->rx.telling = false;
	transfer->rx.tell_at = now + (path_timeout(&peer->tx.congestion.path) << min_u64(transfer->rx.told_times++, 6));
}

bool close_report_write(const struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now)
{
	struct dg_transfer *one;

	for (one = peer->transfers.open; one; one = one->next_open) {
		if (one->rx.tell_at <= now) {
			one->rx.telling = true;
			write_piece(core, one, packet, now);
			return true;
		}
	}
	return false;
}
