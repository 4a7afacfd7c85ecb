// SPDX-License-Identifier: BSD-3-Clause
#include "liveness.h"

#include "transfer.h"

#define ENDS 3 /* no datagram acknowledges one */

void liveness_watch(struct dg_core *core, struct peer *peer, uint64_t now)
{
	if (peer->liveness.check_at != DG_NEVER)
		return;
	peer->liveness.last_heard = now;
	peer->liveness.check_at = now + core->settings.silence_ns / 8;
}

/* A peer is gone, because of `whom`, who was before it; if that cannot be, because of nobody else. */
static void set_gone(struct dg_core *core, struct peer *peer, uint32_t whom)
{
	struct dg_transfer *one, *next;

	if (peer->liveness.gone)
		return;
	peer->liveness.gone = true;
	peer->liveness.because_of = whom < core->settings.ranks && whom != core->settings.rank ? whom : peer->rank;
	peer->handshake.connected = false;
	peer->handshake.hello_at = DG_NEVER;
	peer->liveness.check_at = DG_NEVER;
	peer->tx.inflight = 0;
	peer->rx.unacked = 0;
	core->ended++;
	for (one = peer->transfers.all; one; one = next) {
		next = one->next;
		one->rx.tell_at = DG_NEVER;
		one->rx.telling = false;
		if (one->done || !one->posted)
			continue;
		if (one->receives)
			transfer_zero_holes(one);
		transfer_finish(core, one, DG_GONE);
		if (!one->receives && !one->held)
			transfer_drop(core, one);
	}
}

void dg_gone(struct dg_core *core, uint32_t rank)
{
	if (rank < core->settings.ranks)
		set_gone(core, &core->peers[rank], rank);
}

int dg_is_gone(const struct dg_core *core, uint32_t rank)
{
	return rank < core->settings.ranks && core->peers[rank].liveness.gone;
}

void dg_end(struct dg_core *core, uint32_t whom)
{
	uint32_t i;

	core->leaves_because_of = whom;
	for (i = 0; i < core->settings.ranks; i++) {
		if (core->peers[i].handshake.connected)
			core->peers[i].liveness.ends_left = ENDS;
		else
			set_gone(core, &core->peers[i], whom);
	}
}

static bool has_work(const struct peer *peer)
{
	const struct dg_transfer *one;

	if (peer->transfers.unfinished)
		return true;
	for (one = peer->transfers.open; one; one = one->next_open)
		if (one->rx.tell_at != DG_NEVER)
			return true;
	return false;
}

/* Whether it has acknowledged nothing of what was sent for too long, though it may answer. */
static bool is_stalled(const struct dg_core *core, const struct peer *peer, uint64_t now)
{
	const struct dg_transfer *one;

	if (!peer->tx.stuck_since || now - peer->tx.stuck_since <= core->settings.silence_ns)
		return false;
	for (one = peer->transfers.open; one; one = one->next_open)
		if (!one->receives && !one->done)
			return true;
	return false;
}

void liveness_tick(struct dg_core *core, struct peer *peer, uint64_t now)
{
	if (peer->liveness.check_at > now)
		return;
	if (!has_work(peer)) {
		peer->liveness.check_at = DG_NEVER;
		peer->tx.stuck_since = 0;
	} else if (now - peer->liveness.last_heard > core->settings.silence_ns) {
		dg_gone(core, peer->rank);
	} else if (is_stalled(core, peer, now)) {
		peer->liveness.stalled = true;
		dg_gone(core, peer->rank);
	} else {
		peer->liveness.ping_due = now - peer->liveness.last_heard >= core->settings.silence_ns / 8;
		peer->liveness.check_at = now + core->settings.silence_ns / 8;
	}
}

void liveness_take_pong(struct peer *peer, bool busy, uint64_t arrived, uint64_t now)
{
	struct path *path = &peer->tx.congestion.path;

	if (busy) { /* what was sent has come: it is tried again soon */
		peer->tx.stuck_since = 0;
		peer->tx.backoff = 0;
	} else if (peer->liveness.pinged_at && arrived > peer->liveness.pinged_at && !path->rtt) {
		path_measure_rtt(path, arrived - peer->liveness.pinged_at, now);
	}
}

void liveness_take_end(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes)
{
	uint32_t whom;

	if (wire_read_end(datagram, bytes, &whom))
		set_gone(core, peer, whom);
	else
		peer->rx.malformed++;
}

bool liveness_write_end(struct dg_core *core, struct peer *peer, struct dg_packet *packet)
{
	if (!peer->liveness.ends_left)
		return false;
	peer_begin_datagram(core, peer, packet, DG_END, 0, DG_END_BYTES);
	wire_write_end(packet, core->leaves_because_of);
	if (!--peer->liveness.ends_left)
		set_gone(core, peer, core->leaves_because_of);
	return true;
}

bool liveness_write_ping(const struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now)
{
	bool answers = peer->liveness.pong_due || peer->rx.busy_due;

	if (!answers && !peer->liveness.ping_due)
		return false;
	peer_begin_datagram(core, peer, packet, answers ? DG_PONG : DG_PING, peer->rx.busy_due ? DG_BUSY : 0,
			    DG_HEADER);
	if (answers) {
		peer->liveness.pong_due = false;
		peer->rx.busy_due = false;
	} else {
		peer->liveness.ping_due = false;
		peer->liveness.pinged_at = now;
	}
	return true;
}
