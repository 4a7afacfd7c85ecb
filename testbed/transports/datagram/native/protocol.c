// SPDX-License-Identifier: BSD-3-Clause
#include "protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rate.h"

#define NS 1000000000ULL
#define MOST_BYTES (1ULL << 40) /* of a message */
#define MOST_UNPOSTED 4096 /* messages of a peer that arrive before they are expected */
#define UNPOSTED_BYTES (256ULL << 20) /* of memory that all of these together may reserve */
#define BUSY_EVERY (NS / 10) /* at most as often a peer is told that its packets cannot be taken yet */
#define WELCOMES 16U /* HELLOs of a peer that wait for their answer */
#define SEEN 4096U /* packet numbers that a receiver remembers */
#define TOLD_AGAIN 128U /* packets, by every ACK */
#define CLOSE_BYTES (LTP_LONGEST - LTP_CLOSE_HEADER)
#define AT_ONCE 4 /* packets */
#define NO_MEMORY (NS / 1000) /* for so long nothing is sent */
#define LATE 1000000ULL /* ns by which a timer may be late without its connection becoming slower */
#define ROUNDS_KEPT 2
#define CONFIRMATIONS 64U
#define ACKS_A_ROUND_TRIP 8 /* at least, unless packets are rarer, or the receiver rests for longer */
#define ACK_WAITS 1000000ULL /* ns at most */
#define ENDS 3 /* no datagram acknowledges one */
#define BUCKETS 256U /* by which a peer's messages are found, a power of two */

/*
 * What has become of a packet of a message that is being sent. REWOUND: lost, and in no queue
 * because there was no memory: found again by going through the message from there on.
 */
enum { WAITING, ON_ITS_WAY, LOST, ACKED, REWOUND };

struct clock {
	struct clock *next;
	uint64_t group;
	uint64_t began; /* 0: nothing has arrived */
	uint32_t round;
	uint32_t users;
};

struct ltp_transfer {
	struct ltp_transfer *next; /* of its peer */
	struct ltp_transfer *next_open, *next_alike; /* of those still open; of its bucket */
	struct peer *peer;
	uint64_t serial;
	uint32_t round;
	uint32_t message;
	uint64_t bytes;
	uint64_t packets;
	uint64_t first_ns;
	uint64_t last_ns;
	uint8_t *critical; /* bitmap */
	uint8_t *arrived; /* bitmap: of a receiver, or what the close said */
	uint64_t arrived_bytes; /* of that bitmap; fewer than there are packets for, before it is posted */
	uint64_t reserved; /* bytes of memory, before it is posted */
	uint64_t delivered;
	uint64_t critical_left;
	enum ltp_reason reason;
	bool receives;
	bool named; /* somebody holds it */
	bool done;

	/* sending */
	const uint8_t *data;
	uint8_t *tags; /* of each packet; NULL: 0 */
	uint8_t *state;
	uint64_t next_new;
	uint64_t next_critical;
	uint64_t *lost; /* ring of packets */
	uint64_t lost_first, lost_count, lost_size;
	uint64_t *urgent; /* ring of critical ones */
	uint64_t urgent_first, urgent_count, urgent_size;
	uint64_t acked;
	uint64_t resent;
	uint64_t told; /* packets whose fate the close has told */
	uint64_t told_bytes; /* of them, delivered */

	/* receiving */
	bool posted;
	uint8_t *into;
	uint8_t *kept; /* what came before it was posted */
	uint32_t segment;
	struct ltp_close close;
	struct clock *clock;
	uint64_t began;
	uint64_t tell_at; /* LTP_NEVER: the sender knows how it ended */
	uint64_t tell_next; /* first packet of the next piece of the bitmap */
	uint32_t told_times;
	bool telling;
};

struct flight {
	uint64_t number;
	uint64_t sent;
	uint64_t serial;
	uint64_t packet;
	uint64_t delivered; /* the receiver's count and stamp, as last heard when this was sent */
	uint64_t arrived;
	uint64_t acked; /* bytes, at that time */
	uint32_t bytes;
	uint8_t state;
	bool app_limited;
	bool was_idle;
};

struct peer {
	uint32_t rank;
	uint32_t segment; /* the smaller one of both ends */
	bool called, connected, gone;
	bool stalled; /* it was there, and acknowledged nothing */
	uint32_t because_of; /* who was gone before it, else itself */
	uint64_t mine, theirs; /* connection ids; theirs: 0 until it is known */
	uint64_t salt; /* of the buckets */
	uint64_t call_at;
	uint32_t calls;
	uint64_t called_at;
	uint64_t hellos[WELCOMES]; /* ids of the HELLOs that are to be answered */
	uint32_t hello_count;
	uint64_t heard;
	uint64_t ping_at;
	bool ping, pong, busy;
	uint64_t busy_at;
	uint32_t ends; /* that it is to be sent */
	uint64_t pinged_at;
	struct ltp_transfer *transfers, **last; /* all, as they were made */
	struct ltp_transfer *buckets[BUCKETS];
	/*
	 * Those that time or an output may do something for, in the same order (and, until the next tick, some that have
	 * just ended). All this is gone through with every packet, and many more only wait, or are remembered.
	 */
	struct ltp_transfer *open;
	uint32_t unfinished; /* posted ones that have not ended */
	struct ltp_transfer *recent; /* of which a packet was acknowledged last */

	/* sending */
	uint64_t newest_sent; /* round */
	uint64_t round_bytes, round_acked, last_bytes; /* of that round, of the one before */
	struct rate rate;
	struct flight *flights; /* ring by packet number */
	uint64_t ring;
	uint64_t next_number, oldest, largest_acked;
	bool any_acked;
	uint64_t inflight, sent_bytes, acked_bytes, resent_packets, offered;
	uint64_t their_delivered, their_arrived;
	uint16_t marked, their_marked; /* packets that came marked, so far */
	uint64_t app_limited_until; /* bytes acknowledged */
	uint64_t next_send;
	bool paced; /* nothing but its rate holds it up */
	uint64_t burst_at, burst, largest_burst; /* packets at one instant */
	uint64_t ack_at; /* of the last progress, or the first packet since */
	uint32_t backoff;
	uint64_t stuck_since; /* the first packet that was sent since it acknowledged one; 0: none was */

	/* receiving */
	uint64_t *seen; /* ring bitmap of packet numbers */
	uint64_t largest, largest_arrived;
	bool any_seen;
	uint64_t unacked_least, unacked;
	uint64_t ack_due; /* of the first of them */
	uint64_t delivered_bytes, delivered_at_largest;
	uint64_t handed;
	struct {
		uint32_t round, message;
		bool handed; /* by its program, too late */
	} confirmations[CONFIRMATIONS]; /* closes that are to be confirmed */
	uint32_t confirm_first, confirm_count;
	uint64_t newest_round;
	uint64_t their_rtprop, their_rate;
	uint32_t unposted;
	uint64_t reserved; /* bytes of memory, by these */
	uint64_t stale, malformed;
};

struct ltp {
	struct ltp_settings settings;
	struct peer *peers;
	struct clock *clocks;
	uint64_t state[2];
	uint64_t serial;
	uint64_t ended;
	uint32_t turn;
	uint32_t leaves_because_of;
};

/* xoroshiro128+ (Blackman and Vigna, 2018), for connection ids and phases. */
static uint64_t draw(struct ltp *ltp)
{
	uint64_t a = ltp->state[0], b = ltp->state[1], sum = a + b;

	b ^= a;
	ltp->state[0] = (a << 24 | a >> 40) ^ b ^ b << 16;
	ltp->state[1] = b << 37 | b >> 27;
	return sum;
}

/* All bits of the result depend on all of the value's (the finalizer of MurmurHash3, Appleby). */
static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 33) * 0xff51afd7ed558ccdULL;
	value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return value ^ value >> 33;
}

static void put16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value;
}

static void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value);
}

static void put64(uint8_t *at, uint64_t value)
{
	put32(at, value >> 32);
	put32(at + 4, value);
}

static uint16_t get16(const uint8_t *at)
{
	return at[0] << 8 | at[1];
}

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static uint64_t get64(const uint8_t *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static bool bit(const uint8_t *bits, uint64_t at)
{
	return bits[at / 8] >> at % 8 & 1;
}

static void set_bit(uint8_t *bits, uint64_t at)
{
	bits[at / 8] |= 1 << at % 8;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t packets_of(uint64_t bytes, uint32_t segment)
{
	return (bytes + segment - 1) / segment;
}

struct ltp *ltp_new(const struct ltp_settings *settings)
{
	struct ltp *ltp;
	uint32_t i;

	if (settings->segment < 8 || settings->segment % 8 || settings->segment > 65000 ||
	    settings->rank >= settings->ranks || !settings->reorder || !settings->acks) {
		errno = EINVAL;
		return NULL;
	}
	ltp = calloc(1, sizeof(*ltp));
	if (!ltp)
		return NULL;
	ltp->settings = *settings;
	ltp->state[0] = settings->seed[0] | 1;
	ltp->state[1] = settings->seed[1];
	ltp->peers = calloc(settings->ranks, sizeof(*ltp->peers));
	if (!ltp->peers)
		goto fail;
	for (i = 0; i < settings->ranks; i++) {
		struct peer *peer = &ltp->peers[i];

		peer->rank = i;
		peer->segment = settings->segment;
		peer->last = &peer->transfers;
		peer->mine = draw(ltp);
		peer->salt = mix(settings->seed[0] ^ mix(settings->seed[1]));
		peer->call_at = peer->ping_at = LTP_NEVER;
		peer->ring = 64;
		peer->flights = calloc(peer->ring, sizeof(*peer->flights));
		peer->seen = calloc(SEEN / 64, sizeof(*peer->seen));
		rate_init(&peer->rate, settings->segment, settings->coalesce_ns, draw(ltp) >> 32);
		peer->rate.rule = settings->rule;
		if (!peer->flights || !peer->seen)
			goto fail;
	}
	return ltp;
fail:
	ltp_delete(ltp);
	errno = ENOMEM;
	return NULL;
}

static void let_go(struct ltp *ltp, struct clock *clock)
{
	struct clock **at;

	if (!clock || --clock->users)
		return;
	for (at = &ltp->clocks; *at; at = &(*at)->next) {
		if (*at == clock) {
			*at = clock->next;
			free(clock);
			return;
		}
	}
}

static void forget(struct ltp *ltp, struct ltp_transfer *transfer)
{
	let_go(ltp, transfer->clock);
	free(transfer->critical);
	free(transfer->arrived);
	free(transfer->tags);
	free(transfer->state);
	free(transfer->lost);
	free(transfer->urgent);
	free(transfer->kept);
	free(transfer);
}

void ltp_delete(struct ltp *ltp)
{
	uint32_t i;

	if (!ltp)
		return;
	for (i = 0; ltp->peers && i < ltp->settings.ranks; i++) {
		struct ltp_transfer *transfer = ltp->peers[i].transfers;

		while (transfer) {
			struct ltp_transfer *next = transfer->next;

			forget(ltp, transfer);
			transfer = next;
		}
		free(ltp->peers[i].flights);
		free(ltp->peers[i].seen);
	}
	free(ltp->peers);
	free(ltp);
}

void ltp_call(struct ltp *ltp, uint32_t rank, uint64_t now)
{
	struct peer *peer = &ltp->peers[rank];

	if (rank >= ltp->settings.ranks || peer->called)
		return;
	peer->called = true;
	peer->call_at = now;
	peer->heard = now;
}

int ltp_connected(const struct ltp *ltp, uint32_t rank)
{
	return rank < ltp->settings.ranks && ltp->peers[rank].connected;
}

uint32_t ltp_segment(const struct ltp *ltp, uint32_t rank)
{
	return rank < ltp->settings.ranks ? ltp->peers[rank].segment : 0;
}

/* The salt is secret: a peer that picks its messages' names cannot fill one bucket with them. */
static uint32_t bucket_of(const struct peer *peer, bool receives, uint32_t round, uint32_t message)
{
	uint64_t name = (uint64_t)round << 32 | message;

	return mix(mix(name ^ peer->salt) + receives) % BUCKETS;
}

static struct ltp_transfer *find(const struct peer *peer, bool receives, uint32_t round,
				 uint32_t message)
{
	struct ltp_transfer *one;

	for (one = peer->buckets[bucket_of(peer, receives, round, message)]; one; one = one->next_alike)
		if (one->receives == receives && one->round == round && one->message == message)
			return one;
	return NULL;
}

/* What a sender or a posted receiver needs for each packet; false: there is no memory for it. */
static bool furnish(struct ltp_transfer *transfer)
{
	uint64_t bytes = transfer->packets / 8 + 1;
	uint8_t *arrived;

	if (!transfer->critical)
		transfer->critical = calloc(1, bytes);
	if (!transfer->receives && !transfer->state)
		transfer->state = calloc(1, transfer->packets);
	if (!transfer->critical || (!transfer->receives && !transfer->state))
		return false;
	if (transfer->arrived_bytes == bytes)
		return true;
	arrived = calloc(1, bytes);
	if (!arrived)
		return false;
	if (transfer->arrived)
		memcpy(arrived, transfer->arrived, transfer->arrived_bytes);
	free(transfer->arrived);
	transfer->arrived = arrived;
	transfer->arrived_bytes = bytes;
	return true;
}

/* bare: it has nothing for its packets yet. */
static struct ltp_transfer *add(struct ltp *ltp, struct peer *peer, bool receives, uint32_t round,
				uint32_t message, uint64_t bytes, bool bare)
{
	struct ltp_transfer *made = calloc(1, sizeof(*made)), **bucket;

	if (!made)
		return NULL;
	made->peer = peer;
	made->receives = receives;
	made->round = round;
	made->message = message;
	made->bytes = bytes;
	made->segment = peer->segment;
	made->packets = packets_of(bytes, peer->segment);
	made->tell_at = LTP_NEVER;
	if (!bare && !furnish(made)) {
		forget(ltp, made);
		return NULL;
	}
	made->serial = ++ltp->serial;
	*peer->last = made;
	peer->last = &made->next;
	bucket = &peer->buckets[bucket_of(peer, receives, round, message)];
	made->next_alike = *bucket;
	*bucket = made;
	return made;
}

/* Whether a message that is not posted may take so many more bytes of memory. */
static bool may_reserve(const struct peer *peer, uint64_t bytes)
{
	return peer->unposted < MOST_UNPOSTED && bytes <= UNPOSTED_BYTES - peer->reserved;
}

static void reserve(struct ltp_transfer *transfer, uint64_t bytes)
{
	transfer->reserved = bytes;
	transfer->peer->reserved += bytes;
	transfer->peer->unposted++;
}

/* It is posted, or dropped. */
static void unreserve(struct ltp_transfer *transfer)
{
	transfer->peer->reserved -= transfer->reserved;
	transfer->peer->unposted--;
	transfer->reserved = 0;
}

static void open_up(struct ltp_transfer *transfer)
{
	struct ltp_transfer **at = &transfer->peer->open;

	while (*at && (*at)->serial < transfer->serial)
		at = &(*at)->next_open;
	if (*at == transfer)
		return;
	transfer->next_open = *at;
	*at = transfer;
}

static void drop(struct ltp *ltp, struct ltp_transfer *transfer)
{
	struct peer *peer = transfer->peer;
	struct ltp_transfer **at = &peer->transfers;

	while (*at != transfer)
		at = &(*at)->next;
	*at = transfer->next;
	if (!*at)
		peer->last = at;
	at = &peer->buckets[bucket_of(peer, transfer->receives, transfer->round, transfer->message)];
	while (*at != transfer)
		at = &(*at)->next_alike;
	*at = transfer->next_alike;
	for (at = &peer->open; *at; at = &(*at)->next_open) {
		if (*at == transfer) {
			*at = transfer->next_open;
			break;
		}
	}
	if (peer->recent == transfer)
		peer->recent = NULL;
	if (!transfer->posted)
		unreserve(transfer);
	forget(ltp, transfer);
}

/* The first and the last packet, and those of the spans, arrive whatever else is given up. */
static void mark_critical(struct ltp_transfer *transfer, const struct ltp_span *critical,
			  size_t criticals)
{
	uint64_t packet;
	size_t i;

	set_bit(transfer->critical, 0);
	set_bit(transfer->critical, transfer->packets - 1);
	for (i = 0; i < criticals; i++) {
		uint64_t end;

		if (!critical[i].bytes || critical[i].offset >= transfer->bytes)
			continue;
		end = critical[i].offset +
		      smaller(critical[i].bytes, transfer->bytes - critical[i].offset);
		for (packet = critical[i].offset / transfer->segment;
		     packet * transfer->segment < end; packet++)
			set_bit(transfer->critical, packet);
	}
	for (packet = 0; packet < transfer->packets; packet++)
		if (bit(transfer->critical, packet) && !bit(transfer->arrived, packet))
			transfer->critical_left++;
}

static void finish(struct ltp *ltp, struct ltp_transfer *transfer, enum ltp_reason reason)
{
	if (transfer->posted && !transfer->done)
		transfer->peer->unfinished--;
	transfer->done = true;
	transfer->reason = reason;
	ltp->ended++;
}

/* While something is under way, a peer that is silent is asked whether it is there. */
static void watch(struct ltp *ltp, struct peer *peer, uint64_t now)
{
	if (peer->ping_at != LTP_NEVER)
		return;
	peer->heard = now;
	peer->ping_at = now + ltp->settings.silence_ns / 8;
}

/* As MLTCP scales what TCP adds (arXiv 2402.09589): the closer to its end a round is, the more. */
static void probe_by_progress(const struct ltp *ltp, struct peer *peer)
{
	uint64_t whole = peer->round_bytes > peer->last_bytes ? peer->round_bytes : peer->last_bytes;

	if (ltp->settings.slope_permille && whole)
		peer->rate.probe_permille =
			ltp->settings.offset_permille +
			ltp->settings.slope_permille * smaller(peer->round_acked, whole) / whole;
}

static void confirm(struct peer *peer, uint32_t round, uint32_t message, bool handed)
{
	uint32_t at = (peer->confirm_first + peer->confirm_count) % CONFIRMATIONS;

	if (peer->confirm_count == CONFIRMATIONS)
		return; /* it will be told again */
	peer->confirmations[at].round = round;
	peer->confirmations[at].message = message;
	peer->confirmations[at].handed = handed;
	peer->confirm_count++;
}

/* Whether a message of this size may be posted to or from this rank; else errno says why not. */
static bool may_post(const struct ltp *ltp, uint32_t rank, uint64_t bytes)
{
	if (rank >= ltp->settings.ranks || !bytes || bytes > MOST_BYTES) {
		errno = EINVAL;
		return false;
	}
	/* Before the handshake it is not known what a packet holds. What is gone ends at once. */
	if (!ltp->peers[rank].connected && !ltp->peers[rank].gone) {
		errno = ENOTCONN;
		return false;
	}
	return true;
}

struct ltp_transfer *ltp_send(struct ltp *ltp, uint32_t to, uint32_t round, uint32_t message,
			      uint64_t bytes, const uint8_t *data, const uint8_t *tags,
			      const struct ltp_span *critical, size_t criticals, uint64_t now)
{
	struct ltp_transfer *made;
	struct peer *peer;
	uint8_t *own_tags = NULL;

	if (!may_post(ltp, to, bytes))
		return NULL;
	peer = &ltp->peers[to];
	made = find(peer, false, round, message);
	if (made && (made->posted || made->bytes != bytes)) {
		errno = EEXIST;
		return NULL;
	}
	if (tags) {
		uint64_t packets = packets_of(bytes, peer->segment);

		own_tags = malloc(packets);
		if (!own_tags)
			goto no_memory;
		memcpy(own_tags, tags, packets);
	}
	if (!made) {
		made = add(ltp, peer, false, round, message, bytes, false);
		if (!made)
			goto no_memory;
	} else { /* its receiver closed before it was sent, or began to say so */
		if (!made->done && !furnish(made))
			goto no_memory;
		unreserve(made);
	}
	if (!made->done)
		mark_critical(made, critical, criticals);
	made->tags = own_tags;
	made->posted = true;
	made->data = data;
	made->named = true;
	if (!made->done) {
		peer->unfinished++;
		open_up(made);
	}
	peer->offered += bytes;
	if (round > peer->newest_sent) {
		peer->newest_sent = round;
		peer->last_bytes = peer->round_bytes;
		peer->round_bytes = peer->round_acked = 0;
	}
	if (round == peer->newest_sent)
		peer->round_bytes += bytes;
	probe_by_progress(ltp, peer);
	if (peer->gone && !made->done)
		finish(ltp, made, LTP_GONE);
	if (made->done)
		confirm(peer, round, message, true); /* once more: its receiver may take this worker for dead */
	watch(ltp, peer, now);
	return made;
no_memory:
	free(own_tags);
	errno = ENOMEM;
	return NULL;
}

static uint64_t round_began(const struct ltp_transfer *transfer)
{
	return transfer->clock ? transfer->clock->began : transfer->began;
}

static void begin_clock(struct ltp_transfer *transfer, uint64_t when)
{
	struct clock *clock = transfer->clock;

	if (!transfer->began || when < transfer->began)
		transfer->began = when;
	if (clock && (!clock->began || when < clock->began))
		clock->began = when;
}

/* The clock of a group in this round, which counts one more user; NULL: there is no memory for it. */
static struct clock *join(struct ltp *ltp, uint64_t group, uint32_t round)
{
	struct clock *clock;

	for (clock = ltp->clocks; clock; clock = clock->next)
		if (clock->group == group && clock->round == round)
			break;
	if (!clock) {
		clock = calloc(1, sizeof(*clock));
		if (!clock)
			return NULL;
		clock->group = group;
		clock->round = round;
		clock->next = ltp->clocks;
		ltp->clocks = clock;
	}
	clock->users++;
	return clock;
}

/* How long a message takes that meets nothing, as its sender measures; 0: it has not said. */
static uint64_t estimate(const struct ltp *ltp, const struct peer *peer, uint64_t bytes)
{
	if (!peer->their_rate || !peer->their_rtprop)
		return 0;
	return peer->their_rtprop * ltp->settings.rtts_permille / 1000 +
	       (uint64_t)((unsigned __int128)bytes * NS / peer->their_rate);
}

/* Whether it may close because time has passed, and not only because something came. */
static bool by_time(const struct ltp_close *close)
{
	return close->after_ns >= 0 || close->fraction < 1;
}

/* When LT is over and when the deadline has come, LTP_NEVER where that is not known. */
static void thresholds(const struct ltp *ltp, const struct ltp_transfer *transfer, uint64_t *lt,
		       uint64_t *deadline)
{
	const struct ltp_close *close = &transfer->close;
	uint64_t began = round_began(transfer), own = close->shared_lt ? began : transfer->began;
	uint64_t span, slowest = 0;
	uint32_t i;

	*lt = *deadline = LTP_NEVER;
	if (!began || !by_time(close))
		return;
	if (close->lt_ns >= 0) {
		span = close->lt_ns;
	} else {
		span = estimate(ltp, transfer->peer, transfer->bytes);
		for (i = 0; !span && i < ltp->settings.ranks; i++)
			if (estimate(ltp, &ltp->peers[i], transfer->bytes) > slowest)
				slowest = estimate(ltp, &ltp->peers[i], transfer->bytes);
		if (!span)
			span = slowest; /* of a peer that has said nothing yet */
		if (!span)
			return;
	}
	*lt = (own ? own : began) + span;
	if (close->after_ns >= 0)
		*deadline = began + span + close->after_ns;
}

static void fill_holes(struct ltp_transfer *transfer)
{
	uint64_t packet;

	if (!transfer->into || transfer->delivered == transfer->bytes || transfer->close.keep)
		return;
	for (packet = 0; packet < transfer->packets; packet++) {
		uint64_t offset = packet * transfer->segment;

		if (!bit(transfer->arrived, packet))
			memset(transfer->into + offset, 0,
			       smaller(transfer->segment, transfer->bytes - offset));
	}
}

static void close_receiver(struct ltp *ltp, struct ltp_transfer *transfer, enum ltp_reason reason,
			   uint64_t now)
{
	fill_holes(transfer);
	finish(ltp, transfer, reason);
	transfer->peer->ack_due = 0; /* it goes before the close */
	transfer->tell_at = now;
	transfer->tell_next = 0;
	transfer->telling = true;
	open_up(transfer);
}

static void consider(struct ltp *ltp, struct ltp_transfer *transfer, uint64_t now)
{
	const struct ltp_close *close = &transfer->close;
	double share = (double)transfer->delivered / (double)transfer->bytes;
	uint64_t lt, deadline;

	if (!transfer->posted || transfer->done)
		return;
	if (transfer->delivered == transfer->bytes) {
		close_receiver(ltp, transfer, LTP_COMPLETE, now);
		return;
	}
	thresholds(ltp, transfer, &lt, &deadline);
	if (now >= deadline && lt != LTP_NEVER) {
		close_receiver(ltp, transfer, LTP_DEADLINE, now);
	} else if (!transfer->critical_left) {
		if (close->tolerance > 0 && share >= 1 - close->tolerance)
			close_receiver(ltp, transfer, LTP_TOLERANCE, now);
		else if (now >= lt && share >= close->fraction)
			close_receiver(ltp, transfer, LTP_FRACTION, now);
	}
}

/* Forget what ended two rounds ago and is known to have; a packet that old is stale. */
static void forget_old(struct ltp *ltp, struct peer *peer)
{
	struct ltp_transfer *one = peer->transfers, *next;

	for (; one; one = next) {
		uint64_t newest = one->receives ? peer->newest_round : peer->newest_sent;

		next = one->next;
		if (one->round + ROUNDS_KEPT >= newest)
			continue;
		if (!one->posted || (one->done && !one->named && one->tell_at == LTP_NEVER))
			drop(ltp, one);
	}
}

struct ltp_transfer *ltp_receive(struct ltp *ltp, uint32_t from, uint32_t round, uint32_t message,
				 uint64_t bytes, uint8_t *into, const struct ltp_close *close,
				 const struct ltp_span *critical, size_t criticals, uint64_t now)
{
	struct ltp_transfer *transfer;
	struct clock *clock = NULL;
	struct peer *peer;
	uint64_t packet;

	if (!may_post(ltp, from, bytes))
		return NULL;
	peer = &ltp->peers[from];
	transfer = find(peer, true, round, message);
	if (transfer && (transfer->posted || transfer->bytes != bytes)) {
		errno = EEXIST;
		return NULL;
	}
	if (close->group) {
		clock = join(ltp, close->group, round);
		if (!clock) {
			errno = ENOMEM;
			return NULL;
		}
	}
	if (transfer) {
		unreserve(transfer);
	} else {
		transfer = add(ltp, peer, true, round, message, bytes, false);
		if (!transfer) {
			let_go(ltp, clock);
			errno = ENOMEM;
			return NULL;
		}
	}
	if (round > peer->newest_round)
		peer->newest_round = round;
	transfer->posted = true;
	transfer->named = true;
	peer->unfinished++;
	transfer->into = into;
	transfer->close = *close;
	if (by_time(close))
		open_up(transfer);
	if (into && transfer->kept) {
		for (packet = 0; packet < transfer->packets; packet++) {
			uint64_t offset = packet * transfer->segment;

			if (bit(transfer->arrived, packet))
				memcpy(into + offset, transfer->kept + offset,
				       smaller(transfer->segment, bytes - offset));
		}
	}
	free(transfer->kept);
	transfer->kept = NULL;
	mark_critical(transfer, critical, criticals);
	transfer->clock = clock;
	if (transfer->began)
		begin_clock(transfer, transfer->began);
	consider(ltp, transfer, now);
	if (peer->gone && !transfer->done)
		finish(ltp, transfer, LTP_GONE);
	watch(ltp, peer, now);
	forget_old(ltp, peer);
	return transfer;
}

static uint64_t length_of(const struct ltp_transfer *transfer, uint64_t packet)
{
	uint64_t offset = packet * transfer->segment;

	return smaller(transfer->segment, transfer->bytes - offset);
}

size_t ltp_holes(const struct ltp_transfer *transfer, struct ltp_span *holes, size_t most)
{
	uint64_t packet = 0;
	size_t count = 0;

	if (transfer->reason == LTP_COMPLETE)
		return 0;
	while (packet < transfer->packets) {
		uint64_t first = packet, bytes = 0;

		while (packet < transfer->packets && !bit(transfer->arrived, packet))
			bytes += length_of(transfer, packet++);
		if (packet == first) {
			packet++;
			continue;
		}
		if (count < most)
			holes[count] = (struct ltp_span){ first * transfer->segment, bytes };
		count++;
	}
	return count;
}

void ltp_result(const struct ltp_transfer *transfer, struct ltp_result *result)
{
	*result = (struct ltp_result){
		.bytes = transfer->bytes,
		.delivered = transfer->delivered,
		.resent = transfer->resent,
		.first_ns = transfer->first_ns,
		.last_ns = transfer->last_ns,
		.clock_ns = round_began(transfer),
		.holes = transfer->done ? ltp_holes(transfer, NULL, 0) : 0,
		.reason = transfer->reason,
		.done = transfer->done,
		.gone = transfer->peer->because_of,
		.stalled = transfer->peer->stalled,
	};
}

bool ltp_done(const struct ltp_transfer *transfer)
{
	return transfer->done;
}

void ltp_release(struct ltp *ltp, struct ltp_transfer *transfer)
{
	transfer->named = false;
	transfer->into = NULL;
	if (!transfer->receives && transfer->done)
		drop(ltp, transfer);
	else
		transfer->data = NULL;
}

uint64_t ltp_ended(const struct ltp *ltp)
{
	return ltp->ended;
}

/* A peer is gone, because of `whom`, who was before it; if that cannot be, because of nobody else. */
static void depart(struct ltp *ltp, struct peer *peer, uint32_t whom)
{
	struct ltp_transfer *one, *next;

	if (peer->gone)
		return;
	peer->gone = true;
	peer->because_of = whom < ltp->settings.ranks && whom != ltp->settings.rank ? whom : peer->rank;
	peer->connected = false;
	peer->call_at = peer->ping_at = LTP_NEVER;
	peer->inflight = 0;
	peer->unacked = 0;
	ltp->ended++;
	for (one = peer->transfers; one; one = next) {
		next = one->next;
		one->tell_at = LTP_NEVER;
		one->telling = false;
		if (one->done || !one->posted)
			continue;
		if (one->receives)
			fill_holes(one);
		finish(ltp, one, LTP_GONE);
		if (!one->receives && !one->named)
			drop(ltp, one);
	}
}

void ltp_gone(struct ltp *ltp, uint32_t rank)
{
	if (rank < ltp->settings.ranks)
		depart(ltp, &ltp->peers[rank], rank);
}

int ltp_is_gone(const struct ltp *ltp, uint32_t rank)
{
	return rank < ltp->settings.ranks && ltp->peers[rank].gone;
}

void ltp_end(struct ltp *ltp, uint32_t whom)
{
	uint32_t i;

	ltp->leaves_because_of = whom;
	for (i = 0; i < ltp->settings.ranks; i++) {
		if (ltp->peers[i].connected)
			ltp->peers[i].ends = ENDS;
		else
			depart(ltp, &ltp->peers[i], whom);
	}
}

void ltp_read(const struct ltp *ltp, uint32_t rank, struct ltp_counters *counters)
{
	const struct peer *peer = &ltp->peers[rank];

	*counters = (struct ltp_counters){
		.acked = peer->acked_bytes,
		.sent = peer->offered,
		.resent = peer->resent_packets,
		.rate_bps = 8 * rate_bandwidth(&peer->rate),
		.rtprop_ns = peer->rate.rtprop,
		.rtt_ns = peer->rate.rtt,
		.window = rate_window(&peer->rate) / peer->segment,
		.stale = peer->stale,
		.malformed = peer->malformed,
		.burst = peer->largest_burst,
		.handed = peer->handed,
	};
}

/* ---- receiving ---- */

static void note_packet(const struct ltp *ltp, struct peer *peer, uint64_t number, uint64_t arrived,
			uint64_t now)
{
	uint64_t wait = smaller(peer->their_rtprop / ACKS_A_ROUND_TRIP, ACK_WAITS), i;

	if (!peer->any_seen || number > peer->largest) {
		if (!peer->any_seen || number - peer->largest >= SEEN)
			memset(peer->seen, 0, SEEN / 8);
		else
			for (i = peer->largest + 1; i < number; i++)
				peer->seen[i % SEEN / 64] &= ~(1ULL << i % 64);
		peer->any_seen = true;
		peer->largest = number;
		peer->largest_arrived = arrived;
		peer->delivered_at_largest = peer->delivered_bytes;
	} else if (peer->largest - number >= SEEN) {
		return; /* too old to be told of: the sender has long counted it as lost */
	}
	peer->seen[number % SEEN / 64] |= 1ULL << number % 64;
	if (!peer->unacked)
		peer->ack_due = now + (wait > ltp->settings.coalesce_ns ? wait : ltp->settings.coalesce_ns);
	if (!peer->unacked++ || number < peer->unacked_least)
		peer->unacked_least = number;
}

/* When what came must be acknowledged. */
static uint64_t ack_at(const struct ltp *ltp, const struct peer *peer)
{
	if (!peer->unacked)
		return LTP_NEVER;
	return peer->unacked >= ltp->settings.acks ? 0 : peer->ack_due;
}

static void tell_again(struct ltp_transfer *transfer, uint64_t now)
{
	if (transfer->tell_at != LTP_NEVER && !transfer->telling &&
	    transfer->tell_at > now + transfer->peer->rate.rtt)
		transfer->tell_at = now + transfer->peer->rate.rtt;
}

/* A message of which something comes before it is posted; NULL: it would take too much memory. */
static struct ltp_transfer *add_unposted(struct ltp *ltp, struct peer *peer, uint32_t round,
					 uint32_t message, uint64_t bytes)
{
	uint64_t bitmap = packets_of(bytes, peer->segment) / 8 + 1;
	uint64_t needed = sizeof(struct ltp_transfer) + 2 * bitmap + (ltp->settings.discards ? 0 : bytes);
	struct ltp_transfer *made;

	if (!may_reserve(peer, needed))
		return NULL;
	made = add(ltp, peer, true, round, message, bytes, false);
	if (made)
		reserve(made, needed);
	return made;
}

/* A packet is not acknowledged, so that it comes again; its sender is told that it has come. */
static void put_off(struct peer *peer, uint64_t now)
{
	if (peer->busy_at && now - peer->busy_at < BUSY_EVERY)
		return;
	peer->busy = true;
	peer->busy_at = now;
}

static void take_data(struct ltp *ltp, struct peer *peer, const uint8_t *datagram, size_t bytes,
		      uint64_t arrived, uint64_t now)
{
	struct ltp_transfer *transfer;
	uint64_t number, whole, offset, packet;
	uint32_t round, message, segment, length;

	if (bytes < LTP_DATA_HEADER)
		goto malformed;
	number = get64(datagram + 16);
	round = get32(datagram + 24);
	message = get32(datagram + 28);
	whole = get64(datagram + 32);
	offset = get64(datagram + 40);
	segment = get16(datagram + 56);
	length = get16(datagram + 58);
	if (bytes != LTP_DATA_HEADER + (size_t)length || segment != peer->segment || !whole ||
	    whole > MOST_BYTES || offset >= whole || offset % segment ||
	    length != smaller(segment, whole - offset) || number > peer->largest + (1ULL << 32))
		goto malformed;
	peer->handed++;
	if (round + ROUNDS_KEPT < peer->newest_round) {
		peer->stale++;
		return;
	}
	transfer = find(peer, true, round, message);
	if (!transfer) {
		transfer = add_unposted(ltp, peer, round, message, whole);
		if (!transfer) {
			put_off(peer, now);
			return;
		}
	}
	if (transfer->bytes != whole)
		goto malformed;
	if (get32(datagram + 48) && get32(datagram + 52)) {
		peer->their_rtprop = get32(datagram + 48) * 1000ULL;
		peer->their_rate = get32(datagram + 52) * 125ULL;
	}
	packet = offset / segment;
	if (transfer->done && !bit(transfer->arrived, packet)) {
		tell_again(transfer, now);
		return; /* not acknowledged: it is not delivered */
	}
	if (!bit(transfer->arrived, packet)) {
		if (transfer->into)
			memcpy(transfer->into + offset, datagram + LTP_DATA_HEADER, length);
		if (!transfer->posted && !ltp->settings.discards) {
			if (!transfer->kept)
				transfer->kept = malloc(whole);
			if (!transfer->kept) {
				put_off(peer, now);
				return;
			}
			memcpy(transfer->kept + offset, datagram + LTP_DATA_HEADER, length);
		}
		set_bit(transfer->arrived, packet);
		transfer->delivered += length;
		peer->delivered_bytes += length;
		if (transfer->posted && bit(transfer->critical, packet))
			transfer->critical_left--;
		if (!transfer->first_ns)
			transfer->first_ns = arrived;
		transfer->last_ns = arrived;
		begin_clock(transfer, arrived);
	}
	note_packet(ltp, peer, number, arrived, now);
	consider(ltp, transfer, now);
	return;
malformed:
	peer->malformed++;
}

/* ---- sending ---- */

static bool push(uint64_t **ring, uint64_t first, uint64_t *count, uint64_t *size, uint64_t value)
{
	if (*count == *size) {
		uint64_t wider = *size ? 2 * *size : 16, i;
		uint64_t *made = malloc(wider * sizeof(*made));

		if (!made)
			return false;
		for (i = 0; i < *count; i++)
			made[(first + i) % wider] = (*ring)[(first + i) % *size];
		free(*ring);
		*ring = made;
		*size = wider;
	}
	(*ring)[(first + *count) % *size] = value;
	++*count;
	return true;
}

static struct ltp_transfer *owner(struct peer *peer, const struct flight *flight)
{
	struct ltp_transfer *one = peer->recent;

	if (one && one->serial == flight->serial)
		return one;
	for (one = peer->open; one; one = one->next_open)
		if (one->serial == flight->serial)
			return peer->recent = one;
	return NULL; /* it has ended */
}

static void lose(struct peer *peer, struct flight *flight)
{
	struct ltp_transfer *transfer = owner(peer, flight);
	uint64_t packet = flight->packet, *next;
	bool queued;

	flight->state = LOST;
	peer->inflight -= flight->bytes;
	if (!transfer || transfer->done || transfer->state[packet] != ON_ITS_WAY)
		return;
	if (bit(transfer->critical, packet)) {
		queued = push(&transfer->urgent, transfer->urgent_first, &transfer->urgent_count,
			      &transfer->urgent_size, packet);
		next = &transfer->next_critical;
	} else {
		queued = push(&transfer->lost, transfer->lost_first, &transfer->lost_count,
			      &transfer->lost_size, packet);
		next = &transfer->next_new;
	}
	transfer->state[packet] = queued ? LOST : REWOUND;
	if (queued)
		return;
	*next = smaller(*next, packet);
	transfer->next_new = smaller(transfer->next_new, packet); /* has_data looks there */
}

static void finish_sender(struct ltp *ltp, struct ltp_transfer *transfer, enum ltp_reason reason)
{
	finish(ltp, transfer, reason);
	if (!transfer->named && transfer->posted)
		drop(ltp, transfer);
}

static void take_acked(struct ltp *ltp, struct peer *peer, struct flight *flight, uint64_t now)
{
	struct ltp_transfer *transfer = owner(peer, flight);

	if (flight->state == ON_ITS_WAY)
		peer->inflight -= flight->bytes;
	flight->state = ACKED;
	peer->acked_bytes += flight->bytes;
	if (!transfer || transfer->done || transfer->state[flight->packet] == ACKED)
		return;
	transfer->state[flight->packet] = ACKED;
	transfer->acked += flight->bytes;
	if (transfer->round == peer->newest_sent)
		peer->round_acked += flight->bytes;
	probe_by_progress(ltp, peer);
	transfer->last_ns = now;
	if (transfer->acked == transfer->bytes) {
		transfer->delivered = transfer->bytes;
		finish_sender(ltp, transfer, LTP_COMPLETE);
	}
}

static struct flight *flight_of(const struct peer *peer, uint64_t number)
{
	struct flight *flight = &peer->flights[number % peer->ring];

	if (number >= peer->next_number || flight->number != number || flight->state == WAITING)
		return NULL;
	return flight;
}

static void find_losses(struct ltp *ltp, struct peer *peer)
{
	uint64_t until = peer->largest_acked + 1, reorder = ltp->settings.reorder;

	until = until > reorder ? until - reorder : 0;
	/* Whoever waits for a timer to find losses forgets at least what has been heard of. */
	while (ltp->settings.rule.name && peer->oldest <= peer->largest_acked) {
		struct flight *flight = flight_of(peer, peer->oldest);

		if (flight && flight->state == ON_ITS_WAY)
			break;
		peer->oldest++;
	}
	for (; peer->oldest < until; peer->oldest++) {
		struct flight *flight = flight_of(peer, peer->oldest);

		if (flight && flight->state == ON_ITS_WAY)
			lose(peer, flight);
	}
}

static void take_ack(struct ltp *ltp, struct peer *peer, const uint8_t *datagram, size_t bytes,
		     uint64_t arrived, uint64_t now)
{
	struct rate_sample sample = { .now = now };
	struct flight *flight, first;
	uint64_t largest, delivered, stamp;
	uint32_t delay, length, i;
	uint16_t marked;
	bool progress = false;

	if (bytes < LTP_ACK_HEADER)
		goto malformed;
	largest = get64(datagram + 16);
	delivered = get64(datagram + 24);
	stamp = get64(datagram + 32);
	delay = get32(datagram + 40);
	length = get16(datagram + 44);
	marked = get16(datagram + 46);
	if (bytes != LTP_ACK_HEADER + (size_t)length || largest >= peer->next_number)
		goto malformed;
	flight = flight_of(peer, largest);
	if (flight && flight->state != ACKED) {
		first = *flight;
		take_acked(ltp, peer, flight, now);
		sample.packets++;
		progress = true;
		if (stamp && arrived > first.sent + delay && first.state == ON_ITS_WAY)
			sample.rtt = arrived - first.sent - delay;
		if (sample.rtt)
			sample.held = now - first.sent - sample.rtt;
		if (stamp && first.arrived && stamp > first.arrived &&
		    delivered > first.delivered)
			sample.bandwidth = (uint64_t)((unsigned __int128)(delivered - first.delivered) * NS /
						      (stamp - first.arrived));
		sample.app_limited = first.app_limited;
		sample.was_idle = first.was_idle;
		sample.acked_when_sent = first.acked;
	}
	if (stamp > peer->their_arrived) {
		peer->their_arrived = stamp;
		peer->their_delivered = delivered;
	}
	for (i = 0; i < 8 * length && i < largest; i++) {
		if (!bit(datagram + LTP_ACK_HEADER, i))
			continue;
		flight = flight_of(peer, largest - 1 - i);
		if (flight && flight->state != ACKED) {
			take_acked(ltp, peer, flight, now);
			sample.packets++;
			progress = true;
		}
	}
	if (!progress)
		return;
	if ((int16_t)(marked - peer->their_marked) > 0) {
		sample.marked = (uint16_t)(marked - peer->their_marked);
		peer->their_marked = marked;
	}
	if (!peer->any_acked || largest > peer->largest_acked)
		peer->largest_acked = largest;
	peer->any_acked = true;
	find_losses(ltp, peer);
	peer->stuck_since = 0;
	peer->ack_at = now;
	peer->backoff = 0;
	if (peer->app_limited_until && peer->acked_bytes > peer->app_limited_until)
		peer->app_limited_until = 0;
	sample.acked = peer->acked_bytes;
	sample.sent = peer->sent_bytes;
	sample.inflight = peer->inflight;
	rate_ack(&peer->rate, &sample);
	return;
malformed:
	peer->malformed++;
}

/* Room for so many bytes of what a close says; of a message that is not posted it grows with what is said. */
static bool widen_arrived(struct ltp_transfer *transfer, uint64_t bytes)
{
	uint64_t whole = transfer->packets / 8 + 1, wider = smaller(2 * bytes, whole);
	uint8_t *made;

	if (bytes <= transfer->arrived_bytes)
		return true;
	made = realloc(transfer->arrived, wider);
	if (!made)
		return false;
	memset(made + transfer->arrived_bytes, 0, wider - transfer->arrived_bytes);
	transfer->arrived = made;
	transfer->arrived_bytes = wider;
	return true;
}

/* The next bits of which packets were delivered; false: there is no memory for them. */
static bool take_bits(struct ltp_transfer *transfer, const uint8_t *bits, uint64_t bytes)
{
	uint64_t at = transfer->told / 8, end = (transfer->packets + 7) / 8;

	bytes = smaller(bytes, end - at);
	if (!widen_arrived(transfer, at + bytes))
		return false;
	for (end = at + bytes; at < end; at++, bits++) {
		uint64_t left = transfer->packets - 8 * at;
		uint8_t byte = left < 8 ? *bits & ((1U << left) - 1) : *bits;

		transfer->arrived[at] = byte;
		transfer->told_bytes += (uint64_t)__builtin_popcount(byte) * transfer->segment;
		if (left <= 8 && byte >> (left - 1) & 1) /* the last packet may be shorter */
			transfer->told_bytes -= transfer->segment - length_of(transfer, transfer->packets - 1);
	}
	transfer->told = 8 * end;
	return true;
}

/* Its receiver has closed a message that is not posted here; NULL: it would take too much memory. */
static struct ltp_transfer *add_closed(struct ltp *ltp, struct peer *peer, uint32_t round, uint32_t message,
				       uint64_t bytes)
{
	uint64_t needed = sizeof(struct ltp_transfer) + packets_of(bytes, peer->segment) / 8 + 1;
	struct ltp_transfer *made;

	if (!bytes || bytes > MOST_BYTES || !may_reserve(peer, needed))
		return NULL;
	made = add(ltp, peer, false, round, message, bytes, true);
	if (made)
		reserve(made, needed);
	return made;
}

static void take_close(struct ltp *ltp, struct peer *peer, const uint8_t *datagram, size_t bytes,
		       uint64_t now)
{
	struct ltp_transfer *transfer;
	uint64_t whole, delivered, first, packets;
	uint32_t length, reason, round, message;

	if (bytes < LTP_CLOSE_HEADER)
		goto malformed;
	round = get32(datagram + 16);
	message = get32(datagram + 20);
	whole = get64(datagram + 24);
	delivered = get64(datagram + 32);
	reason = datagram[40];
	length = get16(datagram + 42);
	first = get32(datagram + 44);
	if (bytes != LTP_CLOSE_HEADER + (size_t)length || reason > LTP_GONE || delivered > whole ||
	    first % 8)
		goto malformed;
	transfer = find(peer, false, round, message);
	if (transfer ? transfer->done : reason == LTP_COMPLETE || round + ROUNDS_KEPT < peer->newest_sent) {
		confirm(peer, round, message, transfer && transfer->posted);
		return;
	}
	if ((transfer && transfer->bytes != whole) || (delivered == whole) != (reason == LTP_COMPLETE))
		goto malformed;
	peer->stuck_since = 0;
	if (reason != LTP_COMPLETE) {
		/* Its pieces come in order; one that was lost comes again. */
		packets = packets_of(whole, peer->segment);
		if (first != (transfer ? transfer->told : 0) ||
		    first + 8ULL * length < smaller(packets, first + 8))
			return;
		if (!transfer) /* closed before it was sent */
			transfer = add_closed(ltp, peer, round, message, whole);
		if (!transfer || !take_bits(transfer, datagram + LTP_CLOSE_HEADER, length))
			return;
		transfer->last_ns = now;
		if (transfer->told < packets)
			return;
		if (transfer->told_bytes != delivered) {
			transfer->told = transfer->told_bytes = 0;
			goto malformed;
		}
	}
	transfer->last_ns = now;
	transfer->delivered = delivered;
	confirm(peer, round, message, transfer->posted);
	finish_sender(ltp, transfer, reason);
	return;
malformed:
	peer->malformed++;
}

/* ---- the handshake ---- */

/*
 * HELLO, WELCOME, HELLO: an end believes an id once its peer has shown that it has read the own
 * one, which nobody else sees. Until then a HELLO may be anybody's, or of an earlier connection:
 * it is answered and changes nothing.
 */

static void connect_peer(struct ltp *ltp, struct peer *peer, uint64_t now)
{
	peer->connected = true;
	peer->called = true;
	peer->call_at = LTP_NEVER;
	peer->heard = now;
	ltp->ended++; /* who waits for it looks again */
}

/* The id and the segment that follow the header; false: there are none. */
static bool read_greeting(const struct ltp *ltp, struct peer *peer, const uint8_t *datagram, uint64_t *id,
			  uint32_t *segment)
{
	*id = get64(datagram + LTP_HEADER);
	*segment = get16(datagram + LTP_HEADER + 8);
	if (!*id || *segment < 8 || *segment % 8) {
		peer->malformed++;
		return false;
	}
	*segment = smaller(*segment, ltp->settings.segment);
	return true;
}

/* To be answered by a WELCOME, which is no larger; if they come too fast, some of them are not. */
static void queue_welcome(struct ltp *ltp, struct peer *peer, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < peer->hello_count; i++)
		if (peer->hellos[i] == id)
			return;
	if (peer->hello_count < WELCOMES)
		peer->hellos[peer->hello_count++] = id;
	else
		peer->hellos[draw(ltp) % WELCOMES] = id;
}

static int take_hello(struct ltp *ltp, struct peer *peer, const uint8_t *datagram, size_t bytes, uint64_t now)
{
	uint32_t segment;
	uint64_t id;

	if (bytes < LTP_HELLO_BYTES || !read_greeting(ltp, peer, datagram, &id, &segment))
		return -1;
	if (peer->connected && peer->theirs != id) {
		peer->stale++; /* an older run, or somebody who guesses */
		return -1;
	}
	if (get64(datagram + 8) != peer->mine) {
		queue_welcome(ltp, peer, id);
		return -1;
	}
	if (!peer->connected) {
		peer->theirs = id;
		peer->segment = segment;
		connect_peer(ltp, peer, now);
	}
	peer->ping = true; /* it is heard; and how far away it is */
	return peer->rank;
}

static int take_welcome(struct ltp *ltp, struct peer *peer, const uint8_t *datagram, size_t bytes,
			uint64_t arrived, uint64_t now)
{
	uint32_t segment;
	uint64_t id;

	if (bytes < LTP_WELCOME_BYTES || !peer->called || !read_greeting(ltp, peer, datagram, &id, &segment))
		return -1;
	if (peer->connected || peer->theirs == id)
		return peer->rank;
	if (!peer->theirs && peer->calls == 1 && arrived > peer->called_at)
		rate_rtt(&peer->rate, arrived - peer->called_at, now);
	peer->theirs = id;
	peer->segment = segment;
	peer->calls = 0;
	peer->call_at = now; /* another HELLO, by its id */
	return peer->rank;
}

/* ---- datagrams ---- */

void ltp_marked(struct ltp *ltp, uint32_t rank)
{
	ltp->peers[rank].marked++;
}

bool ltp_is_from(const uint8_t *datagram, size_t bytes, uint32_t rank)
{
	return bytes >= LTP_HEADER && get32(datagram + 4) == rank;
}

int ltp_input(struct ltp *ltp, const uint8_t *datagram, size_t bytes, uint64_t arrived, uint64_t now)
{
	struct ltp_transfer *transfer;
	struct peer *peer;
	uint64_t id;
	uint32_t rank;

	if (bytes < LTP_HEADER || datagram[0] != LTP_VERSION)
		return -1;
	rank = get32(datagram + 4);
	if (rank >= ltp->settings.ranks || rank == ltp->settings.rank)
		return -1;
	peer = &ltp->peers[rank];
	id = get64(datagram + 8);
	if (peer->gone)
		return -1;
	if (datagram[1] == LTP_HELLO)
		return take_hello(ltp, peer, datagram, bytes, now);
	if (id != peer->mine) {
		peer->stale++;
		return -1;
	}
	if (datagram[1] == LTP_WELCOME)
		return take_welcome(ltp, peer, datagram, bytes, arrived, now);
	if (!peer->connected) {
		if (!peer->theirs)
			return -1;
		connect_peer(ltp, peer, now); /* it has read the HELLO by its id */
	}
	peer->heard = now;
	switch (datagram[1]) {
	case LTP_DATA:
		take_data(ltp, peer, datagram, bytes, arrived, now);
		break;
	case LTP_ACK:
		take_ack(ltp, peer, datagram, bytes, arrived, now);
		break;
	case LTP_CLOSE:
		take_close(ltp, peer, datagram, bytes, now);
		break;
	case LTP_CLOSED:
		transfer = bytes < LTP_HEADER + 8 ? NULL :
			   find(peer, true, get32(datagram + 16), get32(datagram + 20));
		if (transfer && transfer->done) {
			transfer->tell_at = LTP_NEVER;
			transfer->telling = false;
		}
		peer->handed += bytes >= LTP_HEADER + 8 && get16(datagram + 2) & LTP_HANDED;
		break;
	case LTP_PING:
		peer->pong = true;
		break;
	case LTP_PONG:
		if (get16(datagram + 2) & LTP_BUSY) /* what was sent has come: it is tried again soon */
			peer->stuck_since = peer->backoff = 0;
		else if (peer->pinged_at && arrived > peer->pinged_at && !peer->rate.rtt)
			rate_rtt(&peer->rate, arrived - peer->pinged_at, now);
		break;
	case LTP_END:
		if (bytes < LTP_END_BYTES)
			peer->malformed++;
		else
			depart(ltp, peer, get32(datagram + LTP_HEADER));
		break;
	default:
		peer->malformed++;
	}
	return rank;
}

static void begin_datagram(const struct ltp *ltp, const struct peer *peer, struct ltp_packet *packet,
			   enum ltp_type type, uint16_t flags, uint32_t bytes)
{
	memset(packet->header, 0, bytes);
	packet->rank = peer->rank;
	packet->header_bytes = bytes;
	packet->payload_bytes = 0;
	packet->tag = ltp->settings.control_tag;
	packet->payload = NULL;
	packet->header[0] = LTP_VERSION;
	packet->header[1] = type;
	put16(packet->header + 2, flags);
	put32(packet->header + 4, ltp->settings.rank);
	put64(packet->header + 8, peer->theirs);
}

static void write_ack(const struct ltp *ltp, struct peer *peer, struct ltp_packet *packet, uint64_t now)
{
	uint64_t bits = peer->largest - peer->unacked_least, delay = now - peer->largest_arrived;
	uint64_t i, number;

	if (bits < TOLD_AGAIN)
		bits = TOLD_AGAIN;
	bits = smaller(smaller(bits, peer->largest), SEEN - 1);
	begin_datagram(ltp, peer, packet, LTP_ACK, 0, LTP_ACK_HEADER + (bits + 7) / 8);
	put64(packet->header + 16, peer->largest);
	put64(packet->header + 24, peer->delivered_at_largest);
	put64(packet->header + 32, peer->largest_arrived);
	put32(packet->header + 40, smaller(now > peer->largest_arrived ? delay : 0, UINT32_MAX));
	put16(packet->header + 44, (bits + 7) / 8);
	put16(packet->header + 46, peer->marked);
	for (i = 0; i < bits; i++) {
		number = peer->largest - 1 - i;
		if (peer->seen[number % SEEN / 64] >> number % 64 & 1)
			set_bit(packet->header + LTP_ACK_HEADER, i);
	}
	peer->unacked = 0;
}

static void write_close(const struct ltp *ltp, struct ltp_transfer *transfer, struct ltp_packet *packet,
			uint64_t now)
{
	bool complete = transfer->reason == LTP_COMPLETE;
	uint64_t first = transfer->tell_next, left = (transfer->packets + 7) / 8 - first / 8;
	uint32_t bytes = complete ? 0 : smaller(left, CLOSE_BYTES);
	struct peer *peer = transfer->peer;

	begin_datagram(ltp, peer, packet, LTP_CLOSE, 0, LTP_CLOSE_HEADER + bytes);
	put32(packet->header + 16, transfer->round);
	put32(packet->header + 20, transfer->message);
	put64(packet->header + 24, transfer->bytes);
	put64(packet->header + 32, transfer->delivered);
	packet->header[40] = transfer->reason;
	put16(packet->header + 42, bytes);
	put32(packet->header + 44, first);
	memcpy(packet->header + LTP_CLOSE_HEADER, transfer->arrived + first / 8, bytes);
	transfer->tell_next += 8ULL * bytes;
	if (!complete && transfer->tell_next < transfer->packets)
		return;
	transfer->tell_next = 0;
	transfer->telling = false;
	transfer->tell_at = now + (rate_timeout(&peer->rate) << smaller(transfer->told_times++, 6));
}

/* What is no data, the most urgent first. */
static bool write_control(struct ltp *ltp, struct peer *peer, struct ltp_packet *packet, uint64_t now)
{
	struct ltp_transfer *one;

	if (peer->call_at <= now) {
		begin_datagram(ltp, peer, packet, LTP_HELLO, 0, LTP_HELLO_BYTES);
		put64(packet->header + LTP_HEADER, peer->mine);
		put16(packet->header + LTP_HEADER + 8, ltp->settings.segment);
		peer->calls++;
		peer->called_at = now;
		peer->call_at = now + (NS / 10 << smaller(peer->calls - 1, 4));
		return true;
	}
	if (peer->hello_count) {
		begin_datagram(ltp, peer, packet, LTP_WELCOME, 0, LTP_WELCOME_BYTES);
		put64(packet->header + 8, peer->hellos[--peer->hello_count]);
		put64(packet->header + LTP_HEADER, peer->mine);
		put16(packet->header + LTP_HEADER + 8, ltp->settings.segment);
		return true;
	}
	if (!peer->connected)
		return false;
	if (peer->ends) {
		begin_datagram(ltp, peer, packet, LTP_END, 0, LTP_END_BYTES);
		put32(packet->header + LTP_HEADER, ltp->leaves_because_of);
		if (!--peer->ends)
			depart(ltp, peer, ltp->leaves_because_of);
		return true;
	}
	if (ack_at(ltp, peer) <= now) {
		write_ack(ltp, peer, packet, now);
		return true;
	}
	if (peer->confirm_count) {
		begin_datagram(ltp, peer, packet, LTP_CLOSED,
			       peer->confirmations[peer->confirm_first].handed ? LTP_HANDED : 0,
			       LTP_HEADER + 8);
		put32(packet->header + 16, peer->confirmations[peer->confirm_first].round);
		put32(packet->header + 20, peer->confirmations[peer->confirm_first].message);
		peer->confirm_first = (peer->confirm_first + 1) % CONFIRMATIONS;
		peer->confirm_count--;
		return true;
	}
	for (one = peer->open; one; one = one->next_open) {
		if (one->tell_at <= now) {
			one->telling = true;
			write_close(ltp, one, packet, now);
			return true;
		}
	}
	if (peer->pong || peer->busy || peer->ping) {
		bool answers = peer->pong || peer->busy;

		begin_datagram(ltp, peer, packet, answers ? LTP_PONG : LTP_PING, peer->busy ? LTP_BUSY : 0,
			       LTP_HEADER);
		if (answers) {
			peer->pong = peer->busy = false;
		} else {
			peer->ping = false;
			peer->pinged_at = now;
		}
		return true;
	}
	return false;
}

static bool pop(struct ltp_transfer *transfer, const uint64_t *ring, uint64_t *first, uint64_t *count,
		uint64_t size, uint64_t *packet)
{
	while (*count) {
		*packet = ring[*first % size];
		*first = (*first + 1) % size;
		--*count;
		if (transfer->state[*packet] == LOST)
			return true;
	}
	return false;
}

static bool next_waiting(const struct ltp_transfer *transfer, uint64_t *at, bool critical)
{
	for (; *at < transfer->packets; ++*at) {
		if (critical && !(*at % 8) && !transfer->critical[*at / 8]) {
			*at += 7;
			continue;
		}
		if (transfer->state[*at] != WAITING && transfer->state[*at] != REWOUND)
			continue;
		if (!critical || bit(transfer->critical, *at))
			return true;
	}
	return false;
}

/* What goes first: critical packets, then new ones, then those that were lost. */
static struct ltp_transfer *pick(struct peer *peer, uint64_t *packet)
{
	struct ltp_transfer *one;
	int queue;

	for (queue = 0; queue < 3; queue++) {
		for (one = peer->open; one; one = one->next_open) {
			if (one->receives || one->done)
				continue;
			if (queue == 0) {
				if (pop(one, one->urgent, &one->urgent_first, &one->urgent_count,
					one->urgent_size, packet))
					return one;
				*packet = one->next_critical;
				if (next_waiting(one, &one->next_critical, true)) {
					*packet = one->next_critical;
					return one;
				}
			} else if (queue == 1) {
				if (next_waiting(one, &one->next_new, false)) {
					*packet = one->next_new;
					return one;
				}
			} else if (pop(one, one->lost, &one->lost_first, &one->lost_count,
				       one->lost_size, packet)) {
				return one;
			}
		}
	}
	return NULL;
}

static bool has_data(const struct peer *peer)
{
	const struct ltp_transfer *one;

	for (one = peer->open; one; one = one->next_open)
		if (!one->receives && !one->done &&
		    (one->next_new < one->packets || one->lost_count || one->urgent_count))
			return true;
	return false;
}

static uint64_t packet_time(const struct peer *peer)
{
	return peer->segment * NS / rate_pacing(&peer->rate);
}

static bool has_room(const struct peer *peer)
{
	return !peer->inflight || peer->rate.rule.name ||
	       peer->inflight + peer->segment <= rate_window(&peer->rate);
}

static bool widen(struct peer *peer)
{
	uint64_t i, wider = 2 * peer->ring;
	struct flight *made;

	if (peer->next_number - peer->oldest < peer->ring)
		return true;
	if (peer->ring >= 1 << 22)
		return false;
	made = calloc(wider, sizeof(*made));
	if (!made)
		return false;
	for (i = 0; i < peer->ring; i++)
		if (peer->flights[i].state != WAITING)
			made[peer->flights[i].number % wider] = peer->flights[i];
	free(peer->flights);
	peer->flights = made;
	peer->ring = wider;
	return true;
}

static bool write_data(struct ltp *ltp, struct peer *peer, struct ltp_packet *packet, uint64_t now)
{
	struct ltp_transfer *transfer;
	uint64_t number, at, offset, apart, credit, bandwidth = rate_bandwidth(&peer->rate);
	struct flight *flight;
	uint32_t length;
	bool again;

	if (!peer->connected)
		return false;
	if (now < peer->next_send) {
		peer->paced = has_room(peer) && has_data(peer);
		return false;
	}
	if (!has_room(peer)) {
		peer->paced = false;
		return false;
	}
	if (!widen(peer)) {
		peer->paced = false;
		peer->next_send = now + NO_MEMORY;
		return false;
	}
	transfer = pick(peer, &at);
	if (!transfer) {
		peer->paced = false;
		/* What is measured from here on is what there was to send. */
		peer->app_limited_until = peer->acked_bytes + peer->inflight;
		if (!peer->app_limited_until)
			peer->app_limited_until = 1;
		return false;
	}
	again = transfer->state[at] != WAITING;
	transfer->state[at] = ON_ITS_WAY;
	offset = at * transfer->segment;
	length = length_of(transfer, at);
	number = peer->next_number++;
	begin_datagram(ltp, peer, packet, LTP_DATA,
		       (bit(transfer->critical, at) ? LTP_CRITICAL : 0) | (again ? LTP_RESENT : 0),
		       LTP_DATA_HEADER);
	put64(packet->header + 16, number);
	put32(packet->header + 24, transfer->round);
	put32(packet->header + 28, transfer->message);
	put64(packet->header + 32, transfer->bytes);
	put64(packet->header + 40, offset);
	put32(packet->header + 48, smaller(peer->rate.rtprop / 1000 + 1, UINT32_MAX));
	put32(packet->header + 52, smaller(bandwidth / 125, UINT32_MAX));
	put16(packet->header + 56, transfer->segment);
	put16(packet->header + 58, length);
	packet->tag = transfer->tags ? transfer->tags[at] : 0;
	packet->payload = transfer->data ? transfer->data + offset : NULL;
	packet->payload_bytes = length;
	flight = &peer->flights[number % peer->ring];
	*flight = (struct flight){
		.number = number,
		.sent = now,
		.serial = transfer->serial,
		.packet = at,
		.delivered = peer->their_delivered,
		.arrived = peer->their_arrived,
		.acked = peer->acked_bytes,
		.bytes = length,
		.state = ON_ITS_WAY,
		.app_limited = peer->app_limited_until,
		.was_idle = !peer->inflight,
	};
	if (!peer->inflight)
		peer->ack_at = now;
	if (!peer->stuck_since)
		peer->stuck_since = now;
	peer->inflight += length;
	peer->sent_bytes += length;
	if (again) {
		peer->resent_packets++;
		transfer->resent += length;
	}
	if (!transfer->first_ns)
		transfer->first_ns = now;
	apart = packet_time(peer);
	credit = (AT_ONCE - 1) * apart;
	if (peer->paced && credit < LATE)
		credit = LATE;
	if (now > credit && peer->next_send < now - credit)
		peer->next_send = now - credit;
	peer->next_send += apart;
	peer->burst = peer->burst_at == now ? peer->burst + 1 : 1;
	peer->burst_at = now;
	if (peer->burst > peer->largest_burst)
		peer->largest_burst = peer->burst;
	return true;
}

int ltp_output(struct ltp *ltp, uint64_t now, struct ltp_packet *packet)
{
	uint32_t i, ranks = ltp->settings.ranks;

	for (i = 0; i < ranks; i++) {
		struct peer *peer = &ltp->peers[(ltp->turn + i) % ranks];

		if (peer->gone)
			continue;
		if (write_control(ltp, peer, packet, now))
			return 1;
	}
	for (i = 0; i < ranks; i++) {
		struct peer *peer = &ltp->peers[(ltp->turn + i) % ranks];

		if (!peer->gone && write_data(ltp, peer, packet, now)) {
			ltp->turn = (ltp->turn + i) % ranks; /* goes on, as far as its pacing lets it */
			return 1;
		}
	}
	ltp->turn = (ltp->turn + 1) % ranks;
	return 0;
}

void ltp_held_up(struct ltp *ltp)
{
	uint32_t i;

	for (i = 0; i < ltp->settings.ranks; i++)
		ltp->peers[i].paced = false;
}

static bool busy(const struct peer *peer)
{
	const struct ltp_transfer *one;

	if (peer->unfinished)
		return true;
	for (one = peer->open; one; one = one->next_open)
		if (one->tell_at != LTP_NEVER)
			return true;
	return false;
}

/* Each time twice as long; but a peer is tried eight times, at least, before it counts as gone. */
static uint64_t loss_at(const struct ltp *ltp, const struct peer *peer)
{
	uint64_t timeout = rate_timeout(&peer->rate), most = ltp->settings.silence_ns / 8;

	return peer->ack_at + smaller(timeout << smaller(peer->backoff, 6), most > timeout ? most : timeout);
}

/* Whether it has acknowledged nothing of what was sent for too long, though it may answer. */
static bool stalls(const struct ltp *ltp, const struct peer *peer, uint64_t now)
{
	const struct ltp_transfer *one;

	if (!peer->stuck_since || now - peer->stuck_since <= ltp->settings.silence_ns)
		return false;
	for (one = peer->open; one; one = one->next_open)
		if (!one->receives && !one->done)
			return true;
	return false;
}

uint64_t ltp_next(const struct ltp *ltp, uint64_t now)
{
	uint64_t next = LTP_NEVER, lt, deadline;
	const struct ltp_transfer *one;
	uint32_t i;

	for (i = 0; i < ltp->settings.ranks; i++) {
		const struct peer *peer = &ltp->peers[i];

		if (peer->gone)
			continue;
		next = smaller(next, peer->call_at);
		next = smaller(next, peer->ping_at);
		if (peer->hello_count || (peer->connected && (peer->confirm_count || peer->ping || peer->pong ||
							      peer->busy || peer->ends)))
			return now;
		if (!peer->connected)
			continue;
		next = smaller(next, ack_at(ltp, peer));
		if (peer->inflight)
			next = smaller(next, loss_at(ltp, peer));
		if (has_data(peer) && has_room(peer)) {
			uint64_t apart = packet_time(peer) * (AT_ONCE - 1);

			next = smaller(next, peer->next_send + smaller(apart, NS / 1000));
		}
		for (one = peer->open; one; one = one->next_open) {
			next = smaller(next, one->tell_at);
			if (!one->receives || one->done)
				continue;
			thresholds(ltp, one, &lt, &deadline);
			if (lt > now)
				next = smaller(next, lt);
			next = smaller(next, deadline);
		}
	}
	return next > now ? next : now;
}

static void time_out(struct peer *peer, uint64_t now)
{
	uint64_t old = rate_timeout(&peer->rate), number;

	for (number = peer->oldest; number < peer->next_number; number++) {
		struct flight *flight = flight_of(peer, number);

		if (flight && flight->state == ON_ITS_WAY && flight->sent + old <= now)
			lose(peer, flight);
	}
	peer->backoff++;
	peer->ack_at = now;
}

/* Close what time closes, and take what has ended off the list. */
static void go_through(struct ltp *ltp, struct peer *peer, uint64_t now)
{
	struct ltp_transfer **at = &peer->open, *one;

	while ((one = *at)) {
		if (one->receives)
			consider(ltp, one, now);
		if (one->done && one->tell_at == LTP_NEVER)
			*at = one->next_open;
		else
			at = &one->next_open;
	}
}

void ltp_tick(struct ltp *ltp, uint64_t now)
{
	uint32_t i;

	for (i = 0; i < ltp->settings.ranks; i++) {
		struct peer *peer = &ltp->peers[i];

		if (peer->gone)
			continue;
		if (peer->connected && peer->inflight && loss_at(ltp, peer) <= now)
			time_out(peer, now);
		go_through(ltp, peer, now);
		if (peer->ping_at > now)
			continue;
		if (!busy(peer)) {
			peer->ping_at = LTP_NEVER;
			peer->stuck_since = 0;
		} else if (now - peer->heard > ltp->settings.silence_ns) {
			ltp_gone(ltp, i);
		} else if (stalls(ltp, peer, now)) {
			peer->stalled = true;
			ltp_gone(ltp, i);
		} else {
			peer->ping = now - peer->heard >= ltp->settings.silence_ns / 8;
			peer->ping_at = now + ltp->settings.silence_ns / 8;
		}
	}
}
