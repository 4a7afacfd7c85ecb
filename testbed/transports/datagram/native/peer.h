/* SPDX-License-Identifier: BSD-3-Clause */
/* One end of the transport, and what it knows of each peer. */
#ifndef DATAGRAM_PEER_H
#define DATAGRAM_PEER_H

#include "congestion_ops.h"
#include "settings.h"
#include "wire.h"

#define DG_NEVER UINT64_MAX
#define WELCOMES 16U /* HELLOs of a peer that wait for their answer */
#define CONFIRMATIONS 64U
#define BUCKETS 256U /* by which a peer's messages are found, a power of two */

struct dg_transfer;
struct flight;
struct round_clock;

/* HELLO, WELCOME, HELLO (handshake.c). */
struct peer_handshake {
	bool called, connected;
	uint64_t own_id, peer_id; /* of the connection; peer_id: 0 until it is known */
	uint64_t hello_at;
	uint32_t hellos_sent;
	uint64_t hello_sent_at;
	uint64_t to_welcome[WELCOMES]; /* ids of the HELLOs that are to be answered */
	uint32_t to_welcome_count;
};

/* Whether it is there (liveness.c). */
struct peer_liveness {
	bool gone;
	bool stalled; /* it was there, and acknowledged nothing */
	uint32_t because_of; /* who was gone before it, else itself */
	uint64_t last_heard;
	uint64_t check_at;
	bool ping_due, pong_due;
	uint64_t pinged_at;
	uint32_t ends_left; /* that it is to be sent */
};

/* Its messages, both ways (transfer.c). */
struct peer_transfers {
	struct dg_transfer *all, **last; /* as they were made */
	struct dg_transfer *buckets[BUCKETS];
	uint64_t salt; /* of the buckets */
	/*
	 * Those that time or an output may do something for, in the same order (and, until the next tick, some
	 * that have just ended). All this is gone through with every packet, and many more only wait, or are
	 * remembered.
	 */
	struct dg_transfer *open;
	struct dg_transfer *recent; /* of which a packet was acknowledged last */
	uint32_t unfinished; /* posted ones that have not ended */
	uint32_t unposted; /* that arrived, or were closed, before they were posted */
	uint64_t reserved; /* bytes of memory, by these */
};

/* What is sent to it (send.c, recovery.c), and the closes that it is told of (close_report.c). */
struct peer_tx {
	uint64_t newest_round;
	uint64_t round_bytes, round_acked, last_round_bytes; /* of that round, of the one before */
	struct congestion congestion;
	struct flight *flights; /* ring by packet number */
	uint64_t flight_slots;
	uint64_t next_number, oldest, largest_acked;
	bool any_acked;
	uint64_t inflight, sent_bytes, acked_bytes, resent_packets, offered;
	uint64_t their_delivered, their_arrived;
	uint16_t their_marked; /* packets that came marked, so far */
	uint64_t app_limited_until; /* bytes acknowledged */
	uint64_t next_send;
	bool paced; /* nothing but its rate holds it up */
	uint64_t burst_at, burst, largest_burst; /* packets at one instant */
	uint64_t ack_at; /* of the last progress, or the first packet since */
	uint32_t backoff;
	uint64_t stuck_since; /* the first packet that was sent since it acknowledged one; 0: none was */
	struct {
		uint32_t round, message;
		bool handed; /* by its program, too late */
	} confirmations[CONFIRMATIONS]; /* closes that are to be confirmed */
	uint32_t confirm_first, confirm_count;
};

/* What comes from it (receive.c). */
struct peer_rx {
	uint64_t *seen; /* ring bitmap of packet numbers */
	uint64_t largest, largest_arrived;
	bool any_seen;
	uint64_t unacked_least, unacked;
	uint64_t ack_due; /* of the first of them */
	uint64_t delivered_bytes, delivered_at_largest;
	uint16_t marked; /* packets that came marked, so far */
	uint64_t handed_over;
	uint64_t newest_round;
	uint64_t their_rtprop, their_rate;
	bool busy_due; /* it is to be told that its packets cannot be taken yet */
	uint64_t busy_told_at;
	uint64_t stale, malformed;
};

struct peer {
	uint32_t rank;
	uint32_t segment; /* the smaller one of both ends */
	struct peer_handshake handshake;
	struct peer_liveness liveness;
	struct peer_transfers transfers;
	struct peer_tx tx;
	struct peer_rx rx;
};

struct dg_core {
	struct dg_settings settings;
	struct peer *peers;
	struct round_clock *clocks;
	uint64_t random[2];
	uint64_t serial;
	uint64_t ended;
	uint32_t turn;
	uint32_t leaves_because_of;
};

/* A datagram to this peer, of which the header is written. */
void peer_begin_datagram(const struct dg_core *core, const struct peer *peer, struct dg_packet *packet,
			 enum dg_type type, uint16_t flags, uint32_t bytes);

#endif
