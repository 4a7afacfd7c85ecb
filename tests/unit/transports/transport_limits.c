// SPDX-License-Identifier: BSD-3-Clause
/*
 * What a peer can make the transports' core do: the work that a datagram costs, counted in basic
 * blocks by the compiler (-fsanitize-coverage=trace-pc), so that no clock is involved, and the
 * memory that it reserves. And what the core does without memory: each allocation fails in turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../testbed/transports/datagram/native/core.h"

#include "failing_malloc.h"

#define MS 1000000ULL
#define PACKETS 40
#define MOST_BLOCKS 60000 /* of a datagram: all the packet numbers that a receiver remembers, gone through */
#define MOST_RESERVED (300ULL << 20) /* of a peer */

static unsigned long blocks;

void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void)
{
	blocks++;
}

static void require(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}

static void put(uint8_t *at, uint64_t value, int bytes)
{
	while (bytes--) {
		at[bytes] = value;
		value >>= 8;
	}
}

static uint64_t get(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

/* Two cores that are connected, and what is on its way between them arrives at once. */
static struct dg_core *ends[2];
static uint64_t now, id; /* of the victim, which is the second one */
static uint64_t lost; /* the number of a packet that does not arrive; 0: all do */

static bool move(int from)
{
	static uint8_t datagram[70000];
	struct dg_packet packet;

	if (!dg_output(ends[from], now, &packet))
		return false;
	memcpy(datagram, packet.header, packet.header_bytes);
	if (packet.payload)
		memcpy(datagram + packet.header_bytes, packet.payload, packet.payload_bytes);
	if (packet.rank == 1 && datagram[1] != DG_HELLO)
		id = get(datagram + 8, 8);
	if (packet.payload_bytes) {
		require(packet.tag == (datagram[31] & 1 ? 32 : 0), "each packet has the tag of its message");
		if (lost && get(datagram + 16, 8) == lost)
			return true;
	}
	dg_input(ends[!from], datagram, packet.header_bytes + packet.payload_bytes, now, now);
	return true;
}

static void go_on(void)
{
	int moved = 1, e;

	while (moved)
		for (e = 0, moved = 0; e < 2; e++) {
			dg_tick(ends[e], now);
			moved |= move(e);
		}
	now += MS;
}

static void set_up(uint32_t segment)
{
	int e;

	now = MS;
	lost = 0;
	for (e = 0; e < 2; e++) {
		const struct dg_settings settings = { .rank = e,
						      .ranks = 2,
						      .segment = segment,
						      .reorder = 3,
						      .rtts_permille = 1500,
						      .acks = 16,
						      .silence_ns = 1ULL << 40,
						      .seed = { 7, e + 1 } };

		ends[e] = dg_new(&settings);
		require(!!ends[e], "there is memory for an end");
	}
	dg_call(ends[0], 1, now);
	go_on();
	require(dg_connected(ends[0], 1) && dg_connected(ends[1], 0), "they are connected");
	require(id, "the attacker knows the victim's id");
}

static void take_down(void)
{
	dg_delete(ends[0]);
	dg_delete(ends[1]);
}

/* A datagram of the first end, which lies; what it costs the other one, with all that it says and does then. */
static void lie(const char *what, uint8_t type, const uint8_t *rest, size_t bytes)
{
	static uint8_t datagram[70000];
	struct dg_packet packet;
	int said = 0;

	memset(datagram, 0, DG_HEADER);
	datagram[0] = DG_VERSION;
	datagram[1] = type;
	put(datagram + 8, type == DG_HELLO ? 0 : id, 8);
	memcpy(datagram + DG_HEADER, rest, bytes);
	bytes += DG_HEADER;
	blocks = 0;
	dg_input(ends[1], datagram, bytes, now, now);
	dg_tick(ends[1], now);
	while (said < 100 && dg_output(ends[1], now, &packet))
		said++;
	dg_next(ends[1], now);
	if (blocks > MOST_BLOCKS + 200 * bytes) {
		fprintf(stderr, "%s: %zu bytes cost %lu basic blocks\n", what, bytes, blocks);
		abort();
	}
	now += MS;
}

static void lie_data(uint64_t number, uint32_t message, uint64_t whole, uint64_t offset, uint32_t segment)
{
	uint8_t rest[DG_DATA_HEADER - DG_HEADER + 1400] = { 0 };
	uint32_t length = whole - offset < segment ? whole - offset : segment;

	put(rest, number, 8);
	put(rest + 12, message, 4);
	put(rest + 16, whole, 8);
	put(rest + 24, offset, 8);
	put(rest + 40, segment, 2);
	put(rest + 42, length, 2);
	lie("DATA", DG_DATA, rest, DG_DATA_HEADER - DG_HEADER + length);
}

static void lie_close(uint32_t message, uint64_t whole, uint64_t delivered, uint32_t first, uint32_t bytes,
		      uint8_t bits)
{
	uint8_t rest[DG_CLOSE_HEADER - DG_HEADER + 1400];

	memset(rest, bits, sizeof(rest));
	memset(rest, 0, DG_CLOSE_HEADER - DG_HEADER);
	put(rest + 4, message, 4);
	put(rest + 8, whole, 8);
	put(rest + 16, delivered, 8);
	rest[24] = DG_DEADLINE;
	put(rest + 26, bytes, 2);
	put(rest + 28, first, 4);
	lie("CLOSE", DG_CLOSE, rest, DG_CLOSE_HEADER - DG_HEADER + bytes);
}

/* Work and memory are of the datagram's size, or bounded, whatever size it speaks of. */
static void costs(uint32_t segment)
{
	static const uint64_t sizes[] = { 1ULL << 40, 1ULL << 32, 1ULL << 30, 100ULL << 20, 1ULL << 20, 1 };
	unsigned long long before;
	uint8_t rest[48] = { 0 };
	uint32_t i, message;

	set_up(segment);
	before = allocated_bytes;
	for (i = 0; i < 6; i++)
		for (message = 0; message < 100; message++) {
			lie_close(1000 * i + message, sizes[i], 0, 0, 0, 0);
			lie_close(1000 * i + message, sizes[i], 0, 0, 1, 0);
			lie_close(1000 * i + message, sizes[i], 8ULL * segment, 8, 1, 0);
		}
	require(allocated_bytes - before < 1 << 20, "a CLOSE takes as much memory as it has bytes, about");
	for (i = 0; i < 6; i++) {
		for (message = 0; message < 1000; message++) {
			uint64_t at = sizes[i] / segment / 2 * segment;

			lie_data(1 + 4000 * (1000 * i + message), 100000 + 1000 * i + message, sizes[i], at, segment);
		}
	}
	require(allocated_bytes - before < MOST_RESERVED, "DATA of messages that nobody asked for take little");
	for (i = 0; i < 300; i++) {
		put(rest, i, 8);
		put(rest + 8, segment, 2);
		lie("HELLO", DG_HELLO, rest, sizeof(rest));
		lie("PING", DG_PING, rest, 0);
		lie("PONG", DG_PONG, rest, 0);
		lie("ACK", DG_ACK, rest, 32);
		lie("CLOSED", DG_CLOSED, rest, 8);
	}
	require(allocated_bytes - before < MOST_RESERVED, "nothing else takes any");
	take_down();
}

/* Messages whose names fell into one bucket of a table whose function was known. */
static void names(void)
{
	uint32_t message, found = 0;

	set_up(8);
	for (message = 0; found < 2000; message++) {
		if (((message * 2 + 1) * 0x9e3779b1U) >> 24)
			continue;
		lie_data(1 + found++, message, 8, 0, 8);
	}
	require(blocks < 2000, "a message is found among others by a few steps");
	take_down();
}

/* A large message of which two packets are critical: these are found without a look at each of the others. */
static void critical_ones(void)
{
	static uint8_t data[8 << 20];
	struct dg_packet packet;

	set_up(8);
	require(!!dg_send(ends[0], 1, 0, 0, sizeof(data), data, NULL, NULL, 0, now), "it is posted");
	blocks = 0;
	require(dg_output(ends[0], now, &packet) && dg_output(ends[0], now, &packet), "both leave");
	require(get(packet.header + 40, 8) == sizeof(data) - 8, "the last one is the second");
	require(blocks < sizeof(data) / 8, "they are found by bytes of the bitmap");
	take_down();
}

/* The close of a large message, in pieces: each costs as much as it says, the last one, too. */
static void long_closes(void)
{
	const uint64_t packets = 1ULL << 23;
	uint64_t first;

	set_up(8);
	for (first = 0; first < packets; first += 8 * 1024)
		lie_close(0, 8 * packets, 8 * packets / 2, first, 1024, 0x55);
	require(!!dg_send(ends[1], 0, 0, 0, 8 * packets, NULL, NULL, NULL, 0, now), "it may be posted then");
	take_down();
}

/*
 * A message each way, of odd and even names, tagged or not, a packet of each lost, and a third that
 * is closed before it is posted; the allocation of one number fails. What is not posted for that is
 * posted again. Every message ends complete, and in the right place. Returns how many failed.
 */
static unsigned long exchange(unsigned long number, uint64_t loses, bool keeps_failing)
{
	const struct dg_closing_rule whole = { .fraction = 1, .lt_ns = -1, .after_ns = -1, .group = 1 };
	const struct dg_span critical = { 64 * 20, 1 };
	static uint8_t data[64 * PACKETS], tags[PACKETS], into[4][64 * PACKETS];
	struct dg_transfer *sent[4] = { NULL }, *received[4] = { NULL };
	unsigned long before = allocation_failures;
	uint32_t i, tries, done;

	set_up(64);
	memset(tags, 32, sizeof(tags));
	memset(into, 0, sizeof(into));
	for (i = 0; i < sizeof(data); i++)
		data[i] = i * 31 + 7;
	lost = loses;
	fail_at = number ? allocations + number : 0;
	for (tries = 0, done = 0; tries < 3000 && done < 8; tries++) {
		if (keeps_failing)
			fail_every = tries < 40 ? 1 + tries % 3 : 0;
		for (i = 0; i < 4; i++) {
			int from = i / 2;

			errno = 0;
			if (!sent[i])
				sent[i] = dg_send(ends[from], !from, 0, i, sizeof(data), data, i & 1 ? tags : NULL,
						  &critical, 1, now);
			require(sent[i] || errno == ENOMEM, "it is posted, or there is no memory");
			errno = 0;
			if (!received[i] && tries > 5)
				received[i] = dg_receive(ends[!from], from, 0, i, sizeof(data), into[i], &whole,
							 &critical, 1, now);
			require(received[i] || tries <= 5 || errno == ENOMEM, "it is posted, or there is no memory");
		}
		go_on();
		if (tries > 10)
			lost = 0;
		for (i = 0, done = 0; i < 4; i++)
			done += (sent[i] && dg_done(sent[i])) + (received[i] && dg_done(received[i]));
	}
	fail_at = 0;
	fail_every = 0;
	require(done == 8, "every message ends");
	for (i = 0; i < 4; i++) {
		struct dg_result result;

		dg_result(received[i], &result);
		require(result.reason == DG_COMPLETE && !memcmp(into[i], data, sizeof(data)), "and is whole");
	}
	take_down();
	return allocation_failures - before;
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : "all";
	bool all = !strcmp(only, "all");
	unsigned long number = 0, failed;
	uint64_t loses;

	if (all || !strcmp(only, "costs")) {
		costs(8);
		costs(1400);
	}
	if (all || !strcmp(only, "names"))
		names();
	if (all || !strcmp(only, "critical"))
		critical_ones();
	if (all || !strcmp(only, "closes"))
		long_closes();
	if (all || !strcmp(only, "memory")) {
		for (loses = 0; loses < 2 * PACKETS; loses++)
			exchange(0, loses, true);
		do {
			number++;
			failed = exchange(number, 1 + number % (2 * PACKETS), false);
		} while (failed);
		require(number > 20, "an exchange allocates something");
		printf("each of %lu allocations has failed\n", number - 1);
	}
	return 0;
}
