// SPDX-License-Identifier: BSD-3-Clause
#include "handshake.h"

#include "bytes.h"
#include "prng.h"

/*
 * An end believes an id once its peer has shown that it has read the own one, which nobody else sees.
 * Until then a HELLO may be anybody's, or of an earlier connection: it is answered and changes nothing.
 */

void dg_call(struct dg_core *core, uint32_t rank, uint64_t now)
{
	struct peer *peer = &core->peers[rank];

	if (rank >= core->settings.ranks || peer->handshake.called)
		return;
	peer->handshake.called = true;
	peer->handshake.hello_at = now;
	peer->liveness.last_heard = now;
}

int dg_connected(const struct dg_core *core, uint32_t rank)
{
	return rank < core->settings.ranks && core->peers[rank].handshake.connected;
}

uint32_t dg_segment(const struct dg_core *core, uint32_t rank)
{
	return rank < core->settings.ranks ? core->peers[rank].segment : 0;
}

void handshake_complete(struct dg_core *core, struct peer *peer, uint64_t now)
{
	peer->handshake.connected = true;
	peer->handshake.called = true;
	peer->handshake.hello_at = DG_NEVER;
	peer->liveness.last_heard = now;
	core->ended++; /* who waits for it looks again */
}

/* The id and the segment of both ends; false: there are none. */
static bool read_greeting(const struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes,
			  size_t least, struct wire_greeting *greeting)
{
	if (!wire_read_greeting(datagram, bytes, least, greeting))
		return false;
	if (!greeting->id || greeting->segment < 8 || greeting->segment % 8) {
		peer->rx.malformed++;
		return false;
	}
	greeting->segment = min_u64(greeting->segment, core->settings.segment);
	return true;
}

/* To be answered by a WELCOME, which is no larger; if they come too fast, some of them are not. */
static void queue_welcome(struct dg_core *core, struct peer *peer, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < peer->handshake.to_welcome_count; i++)
		if (peer->handshake.to_welcome[i] == id)
			return;
	if (peer->handshake.to_welcome_count < WELCOMES)
		peer->handshake.to_welcome[peer->handshake.to_welcome_count++] = id;
	else
		peer->handshake.to_welcome[prng_draw(core->random) % WELCOMES] = id;
}

int handshake_take_hello(struct dg_core *core, struct peer *peer, uint64_t id, const uint8_t *datagram, size_t bytes,
			 uint64_t now)
{
	struct wire_greeting greeting;

	if (!read_greeting(core, peer, datagram, bytes, DG_HELLO_BYTES, &greeting))
		return -1;
	if (peer->handshake.connected && peer->handshake.peer_id != greeting.id) {
		peer->rx.stale++; /* an older run, or somebody who guesses */
		return -1;
	}
	if (id != peer->handshake.own_id) {
		queue_welcome(core, peer, greeting.id);
		return -1;
	}
	if (!peer->handshake.connected) {
		peer->handshake.peer_id = greeting.id;
		peer->segment = greeting.segment;
		handshake_complete(core, peer, now);
	}
	peer->liveness.ping_due = true; /* it is heard; and how far away it is */
	return peer->rank;
}

int handshake_take_welcome(struct dg_core *core, struct peer *peer, const uint8_t *datagram, size_t bytes,
			   uint64_t arrived, uint64_t now)
{
	struct peer_handshake *handshake = &peer->handshake;
	struct wire_greeting greeting;

	if (!handshake->called || !read_greeting(core, peer, datagram, bytes, DG_WELCOME_BYTES, &greeting))
		return -1;
	if (handshake->connected || handshake->peer_id == greeting.id)
		return peer->rank;
	if (!handshake->peer_id && handshake->hellos_sent == 1 && arrived > handshake->hello_sent_at)
		path_measure_rtt(&peer->tx.congestion.path, arrived - handshake->hello_sent_at, now);
	handshake->peer_id = greeting.id;
	peer->segment = greeting.segment;
	handshake->hellos_sent = 0;
	handshake->hello_at = now; /* another HELLO, by its id */
	return peer->rank;
}

bool handshake_write(struct dg_core *core, struct peer *peer, struct dg_packet *packet, uint64_t now)
{
	struct peer_handshake *handshake = &peer->handshake;

	if (handshake->hello_at <= now) {
		peer_begin_datagram(core, peer, packet, DG_HELLO, 0, DG_HELLO_BYTES);
		wire_write_greeting(packet, handshake->own_id, core->settings.segment);
		handshake->hellos_sent++;
		handshake->hello_sent_at = now;
		handshake->hello_at = now + (NS / 10 << min_u64(handshake->hellos_sent - 1, 4));
		return true;
	}
	if (handshake->to_welcome_count) {
		peer_begin_datagram(core, peer, packet, DG_WELCOME, 0, DG_WELCOME_BYTES);
		put_be64(packet->header + 8, handshake->to_welcome[--handshake->to_welcome_count]);
		wire_write_greeting(packet, handshake->own_id, core->settings.segment);
		return true;
	}
	return false;
}
