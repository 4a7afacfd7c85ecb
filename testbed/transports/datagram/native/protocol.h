/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A loss-tolerant transport between the workers of a job: its state machine, which knows
 * neither sockets nor clocks. Whoever drives it hands in datagrams and the time, takes out
 * datagrams, and asks when it wants to be called again. docs/transports.md has the protocol
 * byte by byte. All times are in ns of one clock that never goes back.
 */
#ifndef TRANSPORTS_PROTOCOL_H
#define TRANSPORTS_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rules.h"

#define LTP_VERSION 3
#define LTP_HEADER 16 /* of every datagram */
#define LTP_DATA_HEADER 60
#define LTP_ACK_HEADER 48
#define LTP_CLOSE_HEADER 48
#define LTP_HELLO_BYTES 64
#define LTP_WELCOME_BYTES 26
#define LTP_END_BYTES 20
#define LTP_LONGEST 1400 /* of what is no data */
#define LTP_NEVER UINT64_MAX

enum ltp_type {
	LTP_HELLO = 1,
	LTP_WELCOME,
	LTP_DATA,
	LTP_ACK,
	LTP_CLOSE,
	LTP_CLOSED,
	LTP_PING,
	LTP_PONG,
	LTP_END,
};

enum ltp_flag { LTP_CRITICAL = 1, LTP_RESENT = 2, LTP_HANDED = 4, LTP_BUSY = 8 };

enum ltp_reason {
	LTP_COMPLETE,
	LTP_TOLERANCE,
	LTP_FRACTION,
	LTP_DEADLINE,
	LTP_ROUND, /* of the format; nothing closes so */
	LTP_GONE,
};

struct ltp_settings {
	uint32_t rank;
	uint32_t ranks;
	uint32_t segment; /* payload of a packet, a multiple of 8 */
	uint32_t reorder; /* later packets acknowledged, until one counts as lost */
	uint32_t rtts_permille; /* of RTprop, how much the first LT has beside the time to send */
	uint32_t acks; /* packets that an ACK waits for at most; 1: one for each */
	uint64_t coalesce_ns; /* for how long a receiver rests, and with it its ACKs */
	uint64_t silence_ns; /* until a peer counts as gone */
	uint64_t seed[2];
	struct rule rule; /* how fast to send; none: as LTP does */
	uint32_t control_tag; /* of what is no data: the second byte of its IP header */
	/* How strongly it probes (BBR's way is 1000), or its rate grows by a rule: so much, plus so much for what of the round's bytes is delivered. */
	uint32_t offset_permille;
	uint32_t slope_permille;
	uint32_t discards; /* nobody looks at bytes: what comes before it is asked for is only counted */
};

/* How a receiver closes. */
struct ltp_close {
	double tolerance;
	double fraction;
	int64_t lt_ns; /* below 0: so many RTprop (rtts_permille) + bytes / BtlBw, as the sender measures them */
	int64_t after_ns; /* the deadline: so long after LT; below 0: never */
	uint64_t group; /* messages of a round with one clock; 0: a clock of its own */
	uint32_t shared_lt; /* LT by the group's clock, too */
	uint32_t keep; /* leave what stands in holes */
};

struct ltp_result {
	uint64_t bytes;
	uint64_t delivered;
	uint64_t resent;
	uint64_t first_ns;
	uint64_t last_ns;
	uint64_t clock_ns; /* when the clock of its closing began */
	uint64_t holes;
	uint32_t reason;
	uint32_t done;
	uint32_t gone; /* who, where that is the reason */
	uint32_t stalled; /* it answers, but acknowledges nothing that is sent to it */
};

struct ltp_counters {
	uint64_t acked; /* bytes */
	uint64_t sent; /* bytes of messages handed over */
	uint64_t resent; /* packets */
	uint64_t rate_bps;
	uint64_t rtprop_ns;
	uint64_t rtt_ns;
	uint64_t window; /* packets */
	uint64_t stale; /* datagrams of another connection, round, or version */
	uint64_t malformed;
	uint64_t burst; /* most packets that left at one instant */
	uint64_t handed; /* datagrams that show that its program goes on: of messages that it has handed over */
};

/* Of every peer, where who samples them reads them; in the order of flows.csv. */
struct ltp_shared {
	uint64_t window, rtt_us, acked, resent;
};

struct ltp;
struct ltp_transfer;

struct ltp_span {
	uint64_t offset;
	uint64_t bytes;
};

struct ltp_packet {
	uint32_t rank; /* whom it goes to */
	uint32_t header_bytes;
	uint32_t payload_bytes;
	uint32_t tag; /* the second byte of its IP header */
	const uint8_t *payload; /* NULL: zeros */
	uint8_t header[LTP_LONGEST];
};

struct ltp *ltp_new(const struct ltp_settings *settings);
void ltp_delete(struct ltp *ltp);
void ltp_call(struct ltp *ltp, uint32_t rank, uint64_t now);
int ltp_connected(const struct ltp *ltp, uint32_t rank);

/*
 * Post a message. NULL and errno: EINVAL (no such peer, or no such size), ENOTCONN (the peer is
 * not connected, so that the size of a packet is not known), EEXIST (a message of that name is
 * posted, or has another size), ENOMEM. A post that fails changes nothing. tags: one for each
 * packet; NULL: all 0.
 */
struct ltp_transfer *ltp_send(struct ltp *ltp, uint32_t to, uint32_t round, uint32_t message,
			      uint64_t bytes, const uint8_t *data, const uint8_t *tags,
			      const struct ltp_span *critical, size_t criticals, uint64_t now);
uint32_t ltp_segment(const struct ltp *ltp, uint32_t rank); /* payload of a packet to this peer */
struct ltp_transfer *ltp_receive(struct ltp *ltp, uint32_t from, uint32_t round, uint32_t message,
				 uint64_t bytes, uint8_t *into, const struct ltp_close *close,
				 const struct ltp_span *critical, size_t criticals, uint64_t now);
void ltp_result(const struct ltp_transfer *transfer, struct ltp_result *result);
bool ltp_done(const struct ltp_transfer *transfer);
/* At most so many holes, in order; how many there are. */
size_t ltp_holes(const struct ltp_transfer *transfer, struct ltp_span *holes, size_t most);
void ltp_release(struct ltp *ltp, struct ltp_transfer *transfer);

/* Whether a datagram names this rank as its sender. */
bool ltp_is_from(const uint8_t *datagram, size_t bytes, uint32_t rank);
/* The rank it came from, if it is of a connection; below 0: nothing to do with us. */
int ltp_input(struct ltp *ltp, const uint8_t *datagram, size_t bytes, uint64_t arrived, uint64_t now);
/* What has just come from this rank was marked on its way (RFC 3168: congestion experienced). */
void ltp_marked(struct ltp *ltp, uint32_t rank);
/* The next datagram that may leave now; 0: none. */
int ltp_output(struct ltp *ltp, uint64_t now, struct ltp_packet *packet);
/* Its host took no more for a while: what is late now is no timer's fault, and not to be made up for. */
void ltp_held_up(struct ltp *ltp);
/* When to call again at the latest: ltp_tick, then ltp_output. */
uint64_t ltp_next(const struct ltp *ltp, uint64_t now);
void ltp_tick(struct ltp *ltp, uint64_t now);
/* A peer is gone: what has to do with it fails. */
void ltp_gone(struct ltp *ltp, uint32_t rank);
/* Every peer is told that this one leaves, because `whom` is gone (itself: nobody is), and then counts as gone, too. */
void ltp_end(struct ltp *ltp, uint32_t whom);
int ltp_is_gone(const struct ltp *ltp, uint32_t rank);
void ltp_read(const struct ltp *ltp, uint32_t rank, struct ltp_counters *counters);
uint64_t ltp_ended(const struct ltp *ltp); /* transfers that have ended so far */

#endif
