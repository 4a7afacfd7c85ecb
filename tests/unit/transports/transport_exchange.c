// SPDX-License-Identifier: BSD-3-Clause
/*
 * The transports' core on its sockets, for sanitizers to watch: two ends exchange messages over
 * loopback, some of the time with somebody between them who loses, repeats, cuts and changes
 * datagrams and adds some of his own; then one leaves, and the other hears of it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../testbed/transports/datagram/native/endpoint.h"
#include "../../../testbed/transports/datagram/native/socket.h"

#include "failing_malloc.h"

#define RANKS 3 /* of which the last one is only spoken of */
#define ROUNDS 3
#ifndef SIZE
#define SIZE 200003
#endif
#ifndef COALESCE
#define COALESCE 20000 /* ns */
#endif
#define SEGMENT 1400
#define PATHS 2
#define LONGEST (DG_DATA_HEADER + SEGMENT + SIPHASH_MAC)
#define PATIENCE (300 * NS)
#define SILENCE (10 * NS)

struct way {
	const char *name;
	int by_ring, segments, acks;
	bool keyed, disturbed;
	uint32_t paths;
	enum congestion_control control; /* with one, packets are tagged, some as if a switch had marked them */
	bool silent; /* one leaves without a word */
};

static const struct way ways[] = {
	{ "joined datagrams", .segments = 44, .acks = 16, .silent = true },
	{ "each by itself, several ways", .segments = 1, .acks = 16, .paths = PATHS },
	{ "each acknowledged", .segments = 44, .acks = 1 },
	{ "disturbed", .segments = 44, .acks = 16, .disturbed = true },
	{ "disturbed, signed", .segments = 1, .acks = 16, .disturbed = true, .keyed = true },
	{ "by a ring", .by_ring = 1, .segments = 1, .acks = 16, .paths = PATHS },
	{ "by a ring, disturbed, signed", .by_ring = 1, .segments = 1, .acks = 16, .disturbed = true, .keyed = true },
	{ "tagged, by delay", .segments = 44, .acks = 10, .control = CONGESTION_DELAY },
	{ "tagged, by marks, disturbed, signed", .segments = 44, .acks = 10, .disturbed = true, .keyed = true,
	  .control = CONGESTION_ECN },
	{ "tagged, by delay, by a ring", .by_ring = 1, .segments = 1, .acks = 10, .paths = PATHS,
	  .control = CONGESTION_DELAY },
	{ "tagged, by marks, by a ring", .by_ring = 1, .segments = 1, .acks = 10, .control = CONGESTION_ECN },
};

#define WAYS (sizeof(ways) / sizeof(*ways))

static const struct way *now_by;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: not so: %s\n", now_by->name, what);
	abort();
}

/* Loopback addresses of this process alone. */
static const char *own_address(uint32_t number)
{
	static char texts[RANKS * (2 + PATHS)][INET_ADDRSTRLEN];

	snprintf(texts[number], INET_ADDRSTRLEN, "127.%u.%u.%u", 1 + number, getpid() >> 8 & 255, getpid() & 255);
	return texts[number];
}

/*
 * Ports, too, and of this way: who has several ways is bound to all addresses, and a ring lets go of its
 * socket late.
 */
static uint16_t own_port(uint32_t rank)
{
	return 10000 + (getpid() % 600 * WAYS + (now_by - ways)) * RANKS + rank;
}

/* What stands for each rank at the other one: datagrams come in by one of the two, and leave by the other. */
struct between {
	pthread_t thread;
	struct sockaddr_in ends[2];
	int fds[2];
	bool signs, leaves_alone, stop;
	unsigned int seed;
};

static bool is(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void pass_on(struct between *between, uint32_t to)
{
	uint8_t datagram[LONGEST + DG_LONGEST_CONTROL];
	ssize_t bytes = recv(between->fds[to], datagram, sizeof(datagram), MSG_DONTWAIT);
	int from = between->fds[!to], what = is(&between->leaves_alone) ? 99 : rand_r(&between->seed) % 100, i;

	if (bytes < 0 || what < 5)
		return;
	if (what < 7)
		bytes = rand_r(&between->seed) % (bytes + 1);
	if (what == 8 && between->signs) /* else it would not be known for what it is */
		datagram[rand_r(&between->seed) % bytes] ^= 1 + rand_r(&between->seed) % 255;
	if (what == 9) {
		for (i = DG_HEADER; i < (int)sizeof(datagram); i++) /* of this connection, if not signed */
			datagram[i] = rand_r(&between->seed);
		datagram[1] = DG_END + 1;
		bytes = rand_r(&between->seed) % sizeof(datagram);
	}
	for (i = 0; i < (what < 12 ? 2 : 1); i++)
		sendto(from, datagram, bytes, 0, (struct sockaddr *)&between->ends[to], sizeof(between->ends[to]));
}

static void *stand(void *argument)
{
	struct between *between = argument;

	while (!is(&between->stop)) {
		struct pollfd fds[2] = { { .fd = between->fds[0], .events = POLLIN },
					 { .fd = between->fds[1], .events = POLLIN } };
		uint32_t i;

		poll(fds, 2, 10);
		for (i = 0; i < 2; i++)
			if (fds[i].revents)
				pass_on(between, i);
	}
	return NULL;
}

static void set_up(struct between *between)
{
	uint32_t i;

	for (i = 0; i < 2; i++) {
		struct sockaddr_in here;

		socket_address(&between->ends[i], own_address(i), own_port(i));
		socket_address(&here, own_address(RANKS + i), own_port(i));
		between->fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
		require(!bind(between->fds[i], (struct sockaddr *)&here, sizeof(here)), "there is room between them");
	}
	require(!pthread_create(&between->thread, NULL, stand, between), "somebody stands there");
}

static void take_down(struct between *between)
{
	__atomic_store_n(&between->stop, true, __ATOMIC_RELEASE);
	pthread_join(between->thread, NULL);
	close(between->fds[0]);
	close(between->fds[1]);
}

static struct endpoint *endpoint_of(const struct way *way, uint32_t rank, int counters)
{
	const struct dg_settings settings = { .rank = rank,
					      .ranks = RANKS,
					      .segment = SEGMENT,
					      .reorder = way->control ? 1U << 31 : 3,
					      .rtts_permille = 1500,
					      .acks = way->acks,
					      .coalesce_ns = COALESCE,
					      .silence_ns = way->silent ? SILENCE : 2 * PATIENCE,
					      .seed = { 7, rank + 1 },
					      .control_tag = way->control ? 128 : 0,
					      .congestion = { .control = way->control,
							      .step_permille = 40,
							      .decrease_permille = 800,
							      .first_permille = 1000,
							      .increase_wins = rank,
							      .by_gradient = !rank,
							      .low = 50000,
							      .high = 250000 } };
	const uint8_t key[SIPHASH_KEY] = "between the two";
	const char *addresses[RANKS], *paths[RANKS * PATHS];
	const uint16_t ports[RANKS] = { own_port(0), own_port(1), own_port(2) };
	uint32_t i;

	for (i = 0; i < RANKS; i++)
		addresses[i] = own_address(way->disturbed && i != rank && i < 2 ? RANKS + i : i);
	for (i = 0; i < RANKS * way->paths; i++)
		paths[i] = own_address(2 * RANKS + i);
	return endpoint_open(&settings, addresses, ports, 106496, 1 << 22, way->segments, way->keyed ? key : NULL,
			     counters, rank * 4096, paths, way->paths, way->by_ring);
}

static struct endpoint *opened(const struct way *way, uint32_t rank, int counters)
{
	struct endpoint *endpoint = endpoint_of(way, rank, counters);

	require(endpoint, "there is a socket");
	return endpoint;
}

struct message {
	struct dg_transfer *sent, *received;
	uint8_t data[SIZE], into[SIZE];
};

/* What both say of it: every byte that came is right, every other is in a hole, and zero. */
static void check(struct endpoint *from, struct endpoint *to, struct message *message)
{
	static struct dg_span holes[SIZE / 8];
	struct dg_result here, there;
	uint64_t missing = 0, i;
	size_t count, hole = 0;

	endpoint_wait(from, message->sent, PATIENCE, &here);
	endpoint_wait(to, message->received, PATIENCE, &there);
	require(here.done && there.done, "it ends");
	require(here.reason == there.reason && here.delivered == there.delivered, "both say the same");
	count = endpoint_holes(to, message->received, holes, SIZE / 8);
	require(count == there.holes && count == endpoint_holes(from, message->sent, NULL, 0), "of the holes, too");
	for (i = 0; i < SIZE; i++) {
		while (hole < count && i >= holes[hole].offset + holes[hole].bytes)
			hole++;
		if (hole < count && i >= holes[hole].offset) {
			missing++;
			require(!message->into[i], "holes are zero");
		} else {
			require(message->into[i] == message->data[i], "what came is right");
		}
	}
	require(there.delivered + missing == SIZE, "there is nothing else");
	endpoint_release(from, message->sent);
	endpoint_release(to, message->received);
}

/* Both ways at once, a message that may lose and one that may not. */
static void exchange(struct endpoint *const ends[2], uint32_t round)
{
	static struct message messages[4];
	static uint8_t tags[SIZE / SEGMENT + 1];
	const struct dg_closing_rule lossy = {
		.tolerance = 0.02, .fraction = 0.5, .lt_ns = 2000000, .after_ns = 1000000, .group = 1
	};
	const struct dg_closing_rule whole = { .fraction = 1, .lt_ns = -1, .after_ns = -1 };
	const struct dg_span critical = { SIZE / 2, 1 };
	uint32_t i, j;

	for (i = 0; i < sizeof(tags); i++)
		tags[i] = i / 8 % 4 << 5 | i / 2 % 4;
	for (i = 0; i < 4; i++) {
		struct message *one = &messages[i];

		for (j = 0; j < SIZE; j++)
			one->data[j] = (j * 31 + round * 7 + i) % 251 + 1;
		memset(one->into, 0xee, SIZE);
		one->received = endpoint_receive(ends[1 - i % 2], i % 2, round, i, SIZE, one->into,
						 i < 2 ? &lossy : &whole, &critical, 1);
		one->sent = endpoint_send(ends[i % 2], 1 - i % 2, round, i, SIZE, one->data,
					  now_by->control ? tags : NULL, &critical, 1);
		require(one->received && one->sent, "it is under way");
	}
	for (i = 0; i < 4; i++)
		check(ends[i % 2], ends[1 - i % 2], &messages[i]);
}

/* One leaves, because the third is gone; or the other one, without a word. */
static void leave(struct endpoint *ends[2], bool silently)
{
	static uint8_t into[SIZE];
	const struct dg_closing_rule whole = { .fraction = 1, .lt_ns = -1, .after_ns = -1 };
	struct dg_transfer *transfer;
	struct dg_result result;

	if (silently) {
		endpoint_close(ends[1]);
		ends[1] = NULL;
		transfer = endpoint_send(ends[0], 1, ROUNDS, 0, SIZE, into, NULL, NULL, 0);
		endpoint_wait(ends[0], transfer, PATIENCE, &result);
		require(result.done && result.reason == DG_GONE && result.gone == 1, "who is silent is gone");
		endpoint_release(ends[0], transfer);
		return;
	}
	transfer = endpoint_receive(ends[1], 0, ROUNDS, 0, SIZE, into, &whole, NULL, 0);
	endpoint_end(ends[0], RANKS - 1);
	endpoint_wait(ends[1], transfer, PATIENCE, &result);
	require(result.done && result.reason == DG_GONE && result.gone == RANKS - 1, "it has said who is gone");
	endpoint_release(ends[1], transfer);
}

static struct dg_transfer *post_early(struct endpoint *endpoint)
{
	const struct dg_closing_rule whole = { .fraction = 1, .lt_ns = -1, .after_ns = -1 };

	return endpoint_receive(endpoint, 1, 0, 0, SIZE, NULL, &whole, NULL, 0);
}

/* Each allocation of an end fails in turn; then there is none, and nothing is left of it. */
static void open_without_memory(void)
{
	struct endpoint *endpoint;
	unsigned long number = 0;

	now_by = &ways[1];
	do {
		fail_at = allocations + ++number;
		endpoint = endpoint_of(now_by, 0, -1);
		fail_at = 0;
		require(endpoint || errno == ENOMEM, "it is there, or there is no memory");
	} while (!endpoint);
	endpoint_close(endpoint);
	require(number > BATCH, "an end allocates something");
}

static void go(const struct way *way)
{
	struct between between = { .signs = way->keyed, .seed = 1 };
	struct endpoint_counters own;
	struct dg_counters counters;
	struct endpoint *ends[2];
	int shared = memfd_create("counters", MFD_CLOEXEC);
	uint32_t i;

	now_by = way;
	require(shared >= 0 && !ftruncate(shared, 2 * 4096), "there is memory for counters");
	if (way->disturbed)
		set_up(&between);
	for (i = 0; i < 2; i++)
		ends[i] = opened(way, i, shared);
	require(!post_early(ends[0]) && errno == ENOTCONN, "nothing is posted before they are connected");
	endpoint_call(ends[0], 1);
	for (i = 0; i < 2; i++)
		require(endpoint_await(ends[i], !i, PATIENCE), "both are there");
	for (i = 0; i < ROUNDS; i++)
		exchange(ends, i);
	endpoint_read(ends[0], 1, &counters, &own);
	require(counters.sent == ROUNDS * 2ULL * SIZE, "everything was sent");
	require(!way->disturbed || counters.resent, "something was sent again");
	require(!(way->disturbed && way->keyed) || own.forged, "something was forged");
	printf("%s: %s, %llu sent again, %llu malformed, %llu stale, %llu forged, %llu foreign\n", way->name,
	       ends[0]->ring ? "ring" : "calls", (unsigned long long)counters.resent,
	       (unsigned long long)counters.malformed, (unsigned long long)counters.stale,
	       (unsigned long long)own.forged, (unsigned long long)own.foreign);
	__atomic_store_n(&between.leaves_alone, true, __ATOMIC_RELEASE);
	leave(ends, way->silent);
	for (i = 0; i < 2; i++)
		if (ends[i])
			endpoint_close(ends[i]);
	if (way->disturbed)
		take_down(&between);
	close(shared);
}

int main(void)
{
	size_t i;

	setlinebuf(stdout);
	open_without_memory();
	for (i = 0; i < WAYS; i++)
		go(&ways[i]);
	return 0;
}
