// SPDX-License-Identifier: BSD-3-Clause
/*
 * The transports' core under libFuzzer: two of them, each with its own segment, connect and exchange
 * messages of several rounds, while the input says who calls and when, how messages close and when
 * they are posted and let go of, which allocations fail, which datagrams are lost, come twice, late,
 * cut or changed, and brings some of its own, HELLOs among them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../testbed/transports/datagram/native/core.h"

#include "failing_malloc.h"

#define SIZE 3001
#define LEAST_SEGMENT 8
#define MOST_SEGMENT 1384
#define HELD 5
#define RANKS 3 /* of which the last one is only spoken of */
#define MESSAGES 24
#define A_ROUND 3 /* messages */
#define STALE 3 /* rounds, after which a message may be forgotten */
#define MOST_STEPS 20000

struct input {
	const uint8_t *at, *end;
};

/* Who claims that a message is huge is to meet what malloc says of it: here, that there is not so much. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

static uint8_t byte(struct input *input)
{
	return input->at < input->end ? *input->at++ : 0;
}

/* A message, as both ends have it; NULL: not posted, or let go of. */
struct exchange {
	struct dg_transfer *sent, *received;
	bool posted[2]; /* by its sender, its receiver */
	bool checked;
	uint8_t from;
	uint32_t bytes;
	struct dg_closing_rule close;
	struct dg_span critical;
	uint8_t into[SIZE];
};

static uint8_t content[SIZE + MESSAGES]; /* of each message from another place on */
static struct exchange exchanges[MESSAGES];
static const uint32_t segments[] = { LEAST_SEGMENT, 64, 72, MOST_SEGMENT };
static long brought, inputs; /* datagrams, so far */
static long connections, refused, failures; /* of inputs; posts before they were, and without memory */

static void bring(struct dg_core *to, const uint8_t *datagram, size_t length, uint64_t now)
{
	int rank = dg_input(to, datagram, length, now, now);

	brought++;
	if (rank >= 0 && brought % 5 == 0)
		dg_marked(to, rank);
}

static void require(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}

/* Every byte that counts as delivered is right, if nobody forged any, and what is critical is there. */
static void check(struct exchange *exchange, const uint8_t *sent, int forged)
{
	struct dg_span holes[SIZE / LEAST_SEGMENT + 2], critical = exchange->critical;
	struct dg_result result;
	uint64_t missing = 0, at = 0;
	size_t count, i;

	dg_result(exchange->received, &result);
	if (!result.done)
		return;
	exchange->checked = true;
	count = dg_holes(exchange->received, holes, sizeof(holes) / sizeof(*holes));
	require(count <= sizeof(holes) / sizeof(*holes), "there is room for every hole");
	for (i = 0; i < count; i++) {
		uint64_t end = holes[i].offset + holes[i].bytes;
		bool besides;

		require(holes[i].offset >= at && end <= exchange->bytes, "holes are in order");
		require(forged || !memcmp(exchange->into + at, sent + at, holes[i].offset - at),
			"what is delivered is right");
		besides = end <= critical.offset || holes[i].offset >= critical.offset + critical.bytes;
		require(result.reason == DG_DEADLINE || result.reason == DG_GONE || !critical.bytes || besides,
			"what is critical is delivered");
		at = end;
		missing += holes[i].bytes;
	}
	require(forged || !memcmp(exchange->into + at, sent + at, exchange->bytes - at), "what is delivered is right");
	require(result.delivered + missing == exchange->bytes, "delivered and missing is all");
	require(result.reason != DG_GONE || result.gone == exchange->from || result.gone == 2,
		"it is gone for somebody else");
}

static struct dg_closing_rule closing(uint8_t how)
{
	struct dg_closing_rule close = { .tolerance = 0, .fraction = 1, .lt_ns = -1, .after_ns = -1 };

	if (how & 1) { /* LTP's */
		close.fraction = 0.5;
		close.lt_ns = how & 4 ? -1 : 1000000;
		close.after_ns = 5000000;
	}
	if (how & 2)
		close.tolerance = 0.1; /* MLT's: at once with all but that */
	if (how & 8) {
		close.group = 1 + (how >> 5);
		close.shared_lt = how >> 7;
	}
	close.keep = how >> 4 & 1;
	return close;
}

/* Message so and so, as its sender or its receiver; what it is like its first post draws. Whether it is posted. */
static bool post(struct dg_core *const ends[2], uint32_t number, bool receives, int forged, struct input *input,
		 uint64_t now)
{
	struct exchange *exchange = &exchanges[number];
	uint32_t round = 3 + number / A_ROUND;
	uint8_t tags[SIZE / LEAST_SEGMENT + 1];
	struct dg_transfer *made;
	bool was_connected;

	if (exchange->posted[receives])
		return false;
	if (!exchange->posted[!receives]) {
		memset(exchange, 0, sizeof(*exchange));
		memset(exchange->into, 0xee, SIZE);
		exchange->from = byte(input) & 1;
		exchange->bytes = number ? 1 + byte(input) * (SIZE - 1) / 255 : SIZE;
		exchange->close = closing(byte(input));
		exchange->critical.bytes = byte(input);
		exchange->critical.offset = exchange->bytes * byte(input) / 256;
		if (exchange->critical.offset + exchange->critical.bytes > exchange->bytes)
			exchange->critical.bytes = exchange->bytes - exchange->critical.offset;
	}
	was_connected = dg_connected(ends[exchange->from ^ receives], !exchange->from ^ receives) ||
			dg_is_gone(ends[exchange->from ^ receives], !exchange->from ^ receives);
	memset(tags, 4 * number, sizeof(tags));
	errno = 0;
	if (receives)
		made = dg_receive(ends[!exchange->from], exchange->from, round, number, exchange->bytes, exchange->into,
				  &exchange->close, &exchange->critical, 1, now);
	else
		made = dg_send(ends[exchange->from], !exchange->from, round, number, exchange->bytes, content + number,
			       number & 1 ? tags : NULL, &exchange->critical, 1, now);
	require(was_connected || (!made && errno == ENOTCONN), "before they are connected nothing is posted");
	require(made || errno == (was_connected ? fail_every ? ENOMEM : EEXIST : ENOTCONN) || forged,
		"what is not posted is so for a reason");
	require(made || errno != EEXIST || forged, "no message is there before it is posted");
	refused += !was_connected;
	failures += !made && was_connected;
	if (!made)
		return false;
	exchange->posted[receives] = true;
	if (receives)
		exchange->received = made;
	else
		exchange->sent = made;
	return true;
}

/* A HELLO as anybody can send it, to whomever: it knows no id, and may not change anything. */
static void forge_hello(struct dg_core *const ends[2], struct input *input, uint64_t now)
{
	uint8_t datagram[DG_HELLO_BYTES] = { DG_VERSION, DG_HELLO };
	uint8_t what = byte(input), i;

	datagram[7] = what >> 2 & 3; /* rank */
	for (i = 8; i < DG_HEADER && what & 2; i++)
		datagram[i] = byte(input);
	for (i = DG_HEADER; i < DG_HEADER + 8; i++)
		datagram[i] = byte(input);
	datagram[DG_HEADER + 8] = byte(input) & 15;
	datagram[DG_HEADER + 9] = byte(input) & ~7;
	bring(ends[what & 1], datagram, sizeof(datagram), now);
}

/* Over a network that loses nothing. */
static void shake_hands(struct dg_core *const ends[2], uint64_t *now)
{
	struct dg_packet packet;
	int turn;

	for (turn = 0; turn < 8; turn++)
		while (dg_output(ends[turn & 1], *now, &packet))
			bring(ends[packet.rank], packet.header, packet.header_bytes, *now += 100000);
}

/* Every packet has the tag of its message: odd ones were given one. */
static void check_tag(const struct dg_packet *packet)
{
	uint8_t message = packet->header[31];

	if (packet->payload_bytes)
		require(packet->tag == (message & 1 ? 4U * message : 0), "each packet has the tag of its message");
}

static bool unfinished(uint32_t number)
{
	return exchanges[number].received && !dg_done(exchanges[number].received);
}

/* Whoever waits for it does so no more, at the one end or the other. */
static void let_go(struct dg_core *const ends[2], uint32_t number, bool receives, int forged)
{
	struct exchange *exchange = &exchanges[number];

	if (receives && exchange->received) {
		check(exchange, content + number, forged);
		dg_release(ends[!exchange->from], exchange->received);
		exchange->received = NULL;
	} else if (!receives && exchange->sent && dg_done(exchange->sent)) {
		dg_release(ends[exchange->from], exchange->sent);
		exchange->sent = NULL;
	}
}

/* Whether that is rounds ago: then its receiver forgets it, which programs that keep to their rounds never see. */
static bool is_old(uint32_t number, uint32_t posted)
{
	return number / A_ROUND + STALE <= (posted - 1) / A_ROUND;
}

/* Whether with so many posted some of rounds ago have not ended at both ends. */
static bool outpaces(uint32_t posted)
{
	uint32_t i;

	for (i = 0; i < posted && is_old(i, posted); i++) {
		const struct exchange *exchange = &exchanges[i];

		if (!exchange->posted[0] || !exchange->posted[1] || unfinished(i) ||
		    (exchange->sent && !dg_done(exchange->sent)))
			return true;
	}
	return false;
}

/* Whether a message that both ends have posted is under way. */
static bool under_way(uint32_t posted)
{
	uint32_t i;

	for (i = 0; i < posted; i++)
		if ((exchanges[i].posted[0] && unfinished(i)) ||
		    (exchanges[i].posted[1] && exchanges[i].sent && !dg_done(exchanges[i].sent)))
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, data + size };
	uint8_t held[HELD][DG_LONGEST_CONTROL + MOST_SEGMENT];
	size_t lengths[HELD] = { 0 }, i;
	uint32_t held_for[HELD];
	struct dg_core *ends[2];
	uint64_t now = 1000000;
	uint32_t posted = 0; /* messages, by one end at least */
	int forged = 0, abandoned = 0, steps, e; /* abandoned: by a program that is not sane, or leaves */
	uint8_t rule = byte(&input), event;
	bool calm, sane = rule & 128; /* both programs keep to their rounds, and wait for what they began */
	uint8_t starts = byte(&input), without = byte(&input);

	inputs++;
	fail_every = without < 64 ? 1 + without % 16 : 0; /* until it is calm */
	allocations = 0;
	for (e = 0; e < 2; e++) {
		struct dg_settings settings = { .rank = e,
						.ranks = RANKS,
						.reorder = 3,
						.segment = segments[starts >> 2 * e & 3],
						.rtts_permille = 1500,
						.acks = 16,
						.silence_ns = 1ULL << 40,
						.seed = { 7, e + 1 } };

		settings.congestion.control = rule % 3; /* as LTP sends, MLT, DLCP */
		settings.congestion.step_permille = 20;
		settings.congestion.decrease_permille = 800;
		settings.congestion.first_permille = 1000;
		settings.congestion.low = 1000000;
		settings.congestion.high = 2000000;
		settings.congestion.by_gradient = rule >> 5 & 1;
		settings.congestion.increase_wins = rule >> 4 & 1;
		if (rule & 64) { /* f= */
			settings.offset_permille = 250;
			settings.slope_permille = 1750;
		}
		if (settings.congestion.control)
			settings.reorder = 1U << 31;
		ends[e] = dg_new(&settings);
		if (!ends[e]) {
			unsigned long every = fail_every;

			require(fail_every && errno == ENOMEM, "it is there if there is memory");
			fail_every = 0;
			ends[e] = dg_new(&settings);
			fail_every = every;
		}
	}
	for (i = 0; i < sizeof(content); i++)
		content[i] = i * 31 + 7;
	memset(exchanges, 0, sizeof(exchanges));
	if ((starts & 48) != 48) /* else in the middle, or not at all */
		dg_call(ends[starts >> 4 & 1], !(starts >> 4 & 1), now);
	if (!(starts & 192)) { /* else the handshake is disturbed, too */
		shake_hands(ends, &now);
		posted = post(ends, 0, false, forged, &input, now) | post(ends, 0, true, forged, &input, now);
	}
	for (steps = 0; steps < MOST_STEPS; steps++) {
		calm = steps >= 400 || input.at >= input.end; /* from here on nothing is lost, and all has to end */
		if (calm)
			fail_every = 0;
		if (calm && (forged || abandoned || !under_way(posted)))
			break;
		for (e = 0; e < 2; e++) {
			struct dg_packet packet;
			int most = calm ? 64 : 8;

			dg_tick(ends[e], now);
			while (most-- && dg_output(ends[e], now, &packet)) {
				uint8_t datagram[DG_LONGEST_CONTROL + MOST_SEGMENT], what = calm ? 0 : byte(&input);
				size_t length = packet.header_bytes + packet.payload_bytes;
				unsigned int slot = what % HELD;

				check_tag(&packet);
				if (packet.rank > 1)
					continue; /* a WELCOME to a third */
				memcpy(datagram, packet.header, packet.header_bytes);
				if (packet.payload_bytes)
					memcpy(datagram + packet.header_bytes, packet.payload, packet.payload_bytes);
				if (what == 255)
					continue; /* lost */
				if (what >= 250) { /* changed, with its connection id */
					datagram[byte(&input) % length] ^= byte(&input) | 1;
					forged = 1;
				} else if (what >= 245) { /* cut: a copy of its own size, for the sanitizer to see */
					length = byte(&input) % length;
				} else if (what >= 240) { /* kept for later */
					memcpy(held[slot], datagram, length);
					lengths[slot] = length;
					held_for[slot] = packet.rank;
					continue;
				}
				uint8_t *copy = malloc(length + !length);

				memcpy(copy, datagram, length);
				now += calm ? 100000 : 5000ULL * what; /* on its way */
				bring(ends[packet.rank], copy, length, now);
				if (what >= 235)
					bring(ends[packet.rank], copy, length, now + 1);
				if (what >= 230 && lengths[slot])
					bring(ends[held_for[slot]], held[slot], lengths[slot], now);
				free(copy);
			}
		}
		if (calm) {
			uint64_t next = dg_next(ends[0], now), other = dg_next(ends[1], now);

			next = next < other ? next : other;
			now = next > now ? next : now + 1;
			continue;
		}
		now += 1 + 100000ULL * byte(&input);
		event = byte(&input);
		if (event % 4 == 0 && event < 240 && posted < MESSAGES && !(sane && outpaces(posted + 1))) {
			bool late = outpaces(posted + 1);

			if (post(ends, posted, event & 16, forged, &input, now)) { /* one end the next, or both do */
				abandoned |= late;
				if (event & 32)
					post(ends, posted, !(event & 16), forged, &input, now);
				posted++;
			}
		} else if (event % 4 == 1 && event < 240 && posted) { /* the other end does so, too */
			uint32_t number = byte(&input) % posted;

			if (post(ends, number, event & 16, forged, &input, now))
				abandoned |= is_old(number, posted);
		} else if (event % 4 == 2 && event < 240 && posted) {
			uint32_t number = byte(&input) % posted;

			if (event & 16 && unfinished(number)) {
				if (sane)
					continue;
				abandoned = 1;
			}
			let_go(ends, number, event & 16, forged);
		}
		if (event % 16 == 3 && event < 240) /* not before there is something to wait for */
			dg_call(ends[event >> 4 & 1], !(event >> 4 & 1), now);
		if (event == 252 || event % 16 == 7)
			forge_hello(ends, &input, now);
		if (event == 253) { /* one of them leaves */
			dg_end(ends[steps % 2], byte(&input));
			abandoned = 1;
		}
		if (event == 254) { /* somebody else's, as it is */
			size_t length = byte(&input);
			uint8_t *own = calloc(1, length + 1);

			for (i = 0; i < length; i++)
				own[i] = byte(&input);
			bring(ends[1], own, length, now);
			free(own);
		}
	}
	require(forged || abandoned || !under_way(posted), "every message ends");
	for (i = 0; i < posted; i++)
		if (exchanges[i].received && !exchanges[i].checked)
			check(&exchanges[i], content + i, forged);
	connections += dg_connected(ends[0], 1) && dg_connected(ends[1], 0);
	dg_delete(ends[0]);
	dg_delete(ends[1]);
	return 0;
}

/* For a log. */
static void say(void)
{
	printf("%ld datagrams brought, by %ld inputs: %ld connected, ", brought, inputs, connections);
	printf("%ld posts refused before that, %ld without memory\n", refused, failures);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return atexit(say);
}

#ifdef ALONE
/* Without libFuzzer: inputs drawn at random, until so many datagrams have come. */
int main(int argc, char **argv)
{
	static uint8_t data[4096];
	long most = argc > 1 ? atol(argv[1]) : 100000;
	unsigned int seed = 1;
	size_t i, size;

	LLVMFuzzerInitialize(&argc, &argv);
	while (brought < most) {
		bool honest = rand_r(&seed) % 2; /* nothing is changed or cut, and nobody leaves */

		size = rand_r(&seed) % sizeof(data);
		for (i = 0; i < size; i++) {
			data[i] = rand_r(&seed) % 8 ? rand_r(&seed) % 230 : rand_r(&seed);
			if (honest && data[i] >= 245)
				data[i] = 255;
		}
		LLVMFuzzerTestOneInput(data, size);
	}
	return 0;
}
#endif
