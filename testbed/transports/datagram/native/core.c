// SPDX-License-Identifier: BSD-3-Clause
#include "core.h"

#include <errno.h>
#include <stdlib.h>

#include "bytes.h"
#include "closing.h"
#include "close_report.h"
#include "congestion.h"
#include "prng.h"
#include "recovery.h"

static bool peer_init(struct dg_core *core, struct peer *peer, uint32_t rank)
{
	const struct dg_settings *settings = &core->settings;

	peer->rank = rank;
	peer->segment = settings->segment;
	peer->transfers.last = &peer->transfers.all;
	peer->handshake.own_id = prng_draw(core->random);
	peer->transfers.salt = prng_mix(settings->seed[0] ^ prng_mix(settings->seed[1]));
	peer->handshake.hello_at = DG_NEVER;
	peer->liveness.check_at = DG_NEVER;
	congestion_init(&peer->tx.congestion, settings, prng_draw(core->random) >> 32);
	bool made = recovery_init(peer);

	return receive_init(peer) && made;
}

struct dg_core *dg_new(const struct dg_settings *settings)
{
	struct dg_core *core;
	uint32_t i;

	if (settings->segment < 8 || settings->segment % 8 || settings->segment > 65000 ||
	    settings->rank >= settings->ranks || !settings->reorder || !settings->acks ||
	    !congestion_find(settings->congestion.control)) {
		errno = EINVAL;
		return NULL;
	}
	core = calloc(1, sizeof(*core));
	if (!core)
		return NULL;
	core->settings = *settings;
	core->random[0] = settings->seed[0] | 1;
	core->random[1] = settings->seed[1];
	core->peers = calloc(settings->ranks, sizeof(*core->peers));
	if (!core->peers)
		goto fail;
	for (i = 0; i < settings->ranks; i++)
		if (!peer_init(core, &core->peers[i], i))
			goto fail;
	return core;
fail:
	dg_delete(core);
	errno = ENOMEM;
	return NULL;
}

void dg_delete(struct dg_core *core)
{
	uint32_t i;

	if (!core)
		return;
	for (i = 0; core->peers && i < core->settings.ranks; i++) {
		struct dg_transfer *transfer = core->peers[i].transfers.all;

		while (transfer) {
			struct dg_transfer *next = transfer->next;

			transfer_free(core, transfer);
			transfer = next;
		}
		free(core->peers[i].tx.flights);
		free(core->peers[i].rx.seen);
	}
	free(core->peers);
	free(core);
}

void dg_read(const struct dg_core *core, uint32_t rank, struct dg_counters *counters)
{
	const struct peer *peer = &core->peers[rank];

	*counters = (struct dg_counters){
		.acked = peer->tx.acked_bytes,
		.sent = peer->tx.offered,
		.resent = peer->tx.resent_packets,
		.rate_bps = 8 * path_bandwidth(&peer->tx.congestion.path),
		.rtprop_ns = peer->tx.congestion.path.rtprop,
		.rtt_ns = peer->tx.congestion.path.rtt,
		.window = congestion_window(&peer->tx.congestion) / peer->segment,
		.stale = peer->rx.stale,
		.malformed = peer->rx.malformed,
		.burst = peer->tx.largest_burst,
		.handed = peer->rx.handed_over,
	};
}

void dg_marked(struct dg_core *core, uint32_t rank)
{
	core->peers[rank].rx.marked++;
}

bool dg_is_from(const uint8_t *datagram, size_t bytes, uint32_t rank)
{
	struct wire_header header;

	return wire_read_header(datagram, bytes, &header) && header.rank == rank;
}

int dg_input(struct dg_core *core, const uint8_t *datagram, size_t bytes, uint64_t arrived, uint64_t now)
{
	struct wire_header header;
	struct peer *peer;

	if (!wire_read_header(datagram, bytes, &header) || header.version != DG_VERSION ||
	    header.rank >= core->settings.ranks || header.rank == core->settings.rank)
		return -1;
	peer = &core->peers[header.rank];
	if (peer->liveness.gone)
		return -1;
	if (header.type == DG_HELLO)
		return handshake_take_hello(core, peer, header.id, datagram, bytes, now);
	if (header.id != peer->handshake.own_id) {
		peer->rx.stale++;
		return -1;
	}
	if (header.type == DG_WELCOME)
		return handshake_take_welcome(core, peer, datagram, bytes, arrived, now);
	if (!peer->handshake.connected) {
		if (!peer->handshake.peer_id)
			return -1;
		handshake_complete(core, peer, now); /* it has read the HELLO by its id */
	}
	peer->liveness.last_heard = now;
	switch (header.type) {
	case DG_DATA:
		receive_data(core, peer, datagram, bytes, arrived, now);
		break;
	case DG_ACK:
		recovery_take_ack(core, peer, datagram, bytes, arrived, now);
		break;
	case DG_CLOSE:
		close_report_take(core, peer, datagram, bytes, now);
		break;
	case DG_CLOSED:
		close_report_take_confirmation(peer, header.flags, datagram, bytes);
		break;
	case DG_PING:
		peer->liveness.pong_due = true;
		break;
	case DG_PONG:
		liveness_take_pong(peer, header.flags & DG_BUSY, arrived, now);
		break;
	case DG_END:
		liveness_take_end(core, peer, datagram, bytes);
		break;
	default:
		peer->rx.malformed++;
	}
	return header.rank;
}

/* What is no data, the most urgent first. */
static bool write_control(struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now)
{
	if (handshake_write(core, peer, packet, now))
		return true;
	return peer->handshake.connected &&
	       (liveness_write_end(core, peer, packet) || receive_write_ack(core, peer, packet, now) ||
		close_report_write_confirmation(core, peer, packet) || close_report_write(core, peer, packet, now) ||
		liveness_write_ping(core, peer, packet, now));
}

int dg_output(struct dg_core *core, uint64_t now, struct dg_packet *packet)
{
	uint32_t i, ranks = core->settings.ranks;

	for (i = 0; i < ranks; i++) {
		struct peer *peer = &core->peers[(core->turn + i) % ranks];

		if (peer->liveness.gone)
			continue;
		if (write_control(core, peer, packet, now))
			return 1;
	}
	for (i = 0; i < ranks; i++) {
		struct peer *peer = &core->peers[(core->turn + i) % ranks];

		if (!peer->liveness.gone && send_write_data(core, peer, packet, now)) {
			core->turn = (core->turn + i) % ranks; /* goes on, as far as its pacing lets it */
			return 1;
		}
	}
	core->turn = (core->turn + 1) % ranks;
	return 0;
}

void dg_held_up(struct dg_core *core)
{
	uint32_t i;

	for (i = 0; i < core->settings.ranks; i++)
		core->peers[i].tx.paced = false;
}

/* Whether something is to be sent to it at once. */
static bool has_control(const struct peer *peer)
{
	return peer->handshake.to_welcome_count ||
	       (peer->handshake.connected &&
		(peer->tx.confirm_count || peer->liveness.ping_due || peer->liveness.pong_due || peer->rx.busy_due ||
		 peer->liveness.ends_left));
}

/* When the first of its messages is to be closed, or told of. */
static uint64_t transfers_next_at(const struct dg_core *core, const struct peer *peer, uint64_t now)
{
	uint64_t next = DG_NEVER, lt, deadline;
	const struct dg_transfer *one;

	for (one = peer->transfers.open; one; one = one->next_open) {
		next = min_u64(next, one->rx.tell_at);
		if (!one->receives || one->done)
			continue;
		closing_times(core, one, &lt, &deadline);
		if (lt > now)
			next = min_u64(next, lt);
		next = min_u64(next, deadline);
	}
	return next;
}

uint64_t dg_next(const struct dg_core *core, uint64_t now)
{
	uint64_t next = DG_NEVER;
	uint32_t i;

	for (i = 0; i < core->settings.ranks; i++) {
		const struct peer *peer = &core->peers[i];

		if (peer->liveness.gone)
			continue;
		if (has_control(peer))
			return now;
		next = min_u64(next, min_u64(peer->handshake.hello_at, peer->liveness.check_at));
		if (!peer->handshake.connected)
			continue;
		next = min_u64(next, receive_ack_due(core, peer));
		if (peer->tx.inflight)
			next = min_u64(next, recovery_timeout_at(core, peer));
		next = min_u64(next, send_next_at(peer));
		next = min_u64(next, transfers_next_at(core, peer, now));
	}
	return next > now ? next : now;
}

/* Close what time closes, and take what has ended off the list. */
static void close_due(struct dg_core *core, struct peer *peer, uint64_t now)
{
	struct dg_transfer **at = &peer->transfers.open, *one;

	while ((one = *at)) {
		if (one->receives)
			closing_rule_decide(core, one, now);
		if (one->done && one->rx.tell_at == DG_NEVER)
			*at = one->next_open;
		else
			at = &one->next_open;
	}
}

void dg_tick(struct dg_core *core, uint64_t now)
{
	uint32_t i;

	for (i = 0; i < core->settings.ranks; i++) {
		struct peer *peer = &core->peers[i];

		if (peer->liveness.gone)
			continue;
		if (peer->handshake.connected && peer->tx.inflight && recovery_timeout_at(core, peer) <= now)
			recovery_time_out(peer, now);
		close_due(core, peer, now);
		liveness_tick(core, peer, now);
	}
}
