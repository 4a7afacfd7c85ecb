// SPDX-License-Identifier: BSD-3-Clause
/*
 * The transports' core under libFuzzer: two of them exchange messages, while the input says
 * which datagrams are lost, come twice, late, cut or changed, and brings some of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../transports/native/protocol.h"

#define SIZE 3001
#define SEGMENT 64
#define HELD 64
#define RANKS 3 /* of which the last one is only spoken of */

struct input {
	const uint8_t *at, *end;
};

static uint8_t byte(struct input *input)
{
	return input->at < input->end ? *input->at++ : 0;
}

static uint8_t sent[SIZE], into[SIZE];
static long brought; /* datagrams, so far */

static void bring(struct ltp *to, const uint8_t *datagram, size_t length, uint64_t now)
{
	int rank = ltp_input(to, datagram, length, now, now);

	brought++;
	if (rank >= 0 && brought % 5 == 0)
		ltp_marked(to, rank);
}

static void require(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "not so: %s\n", what);
	abort();
}

/* Every byte that counts as delivered is right, if nobody forged any. */
static void check(const struct ltp_transfer *received, int forged)
{
	struct ltp_span holes[SIZE / SEGMENT + 2];
	struct ltp_result result;
	uint64_t missing = 0, at = 0;
	size_t count, i;

	ltp_result(received, &result);
	if (!result.done)
		return;
	count = ltp_holes(received, holes, sizeof(holes) / sizeof(*holes));
	require(count <= sizeof(holes) / sizeof(*holes), "there is room for every hole");
	for (i = 0; i < count; i++) {
		require(holes[i].offset >= at && holes[i].offset + holes[i].bytes <= SIZE, "holes are in order");
		require(forged || !memcmp(into + at, sent + at, holes[i].offset - at), "what is delivered is right");
		at = holes[i].offset + holes[i].bytes;
		missing += holes[i].bytes;
	}
	require(forged || !memcmp(into + at, sent + at, SIZE - at), "what is delivered is right");
	require(result.delivered + missing == SIZE, "delivered and missing is all");
	require(result.reason != LTP_GONE || result.gone == 0 || result.gone == 2, "it is gone for somebody else");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, data + size };
	struct ltp_transfer *under_way, *received;
	uint8_t held[HELD][LTP_LONGEST + SEGMENT];
	size_t lengths[HELD] = { 0 }, i;
	struct ltp_close close = { .tolerance = 0, .fraction = 1, .lt_ns = -1, .after_ns = -1 };
	struct ltp *ends[2];
	uint64_t now = 1000000;
	int forged = 0, steps, e;
	uint8_t rule = byte(&input), closes, event;

	for (e = 0; e < 2; e++) {
		struct ltp_settings settings = { .rank = e, .ranks = RANKS, .segment = SEGMENT, .reorder = 3,
						 .rtts_permille = 1500, .acks = 16, .silence_ns = 1ULL << 40,
						 .seed = { 7, e + 1 } };

		settings.rule.name = rule % 3; /* as LTP sends, MLT, DLCP */
		settings.rule.step_permille = 20;
		settings.rule.decrease_permille = 800;
		settings.rule.first_permille = 1000;
		settings.rule.low = 1000000;
		settings.rule.high = 2000000;
		if (settings.rule.name)
			settings.reorder = 1U << 31;
		ends[e] = ltp_new(&settings);
	}
	for (i = 0; i < SIZE; i++)
		sent[i] = i * 31 + 7;
	memset(into, 0xee, SIZE);
	closes = byte(&input);
	if (closes & 2)
		close.tolerance = 0.1; /* MLT's: at once with all but that */
	if (closes & 1) {
		close.fraction = 0.5;
		close.lt_ns = 1000000;
		close.after_ns = 5000000;
	}
	ltp_call(ends[0], 1, now);
	under_way = ltp_send(ends[0], 1, 3, 9, SIZE, sent, NULL, NULL, 0, now);
	received = ltp_receive(ends[1], 0, 3, 9, SIZE, into, &close, NULL, 0, now);
	for (steps = 0; steps < 400 && input.at < input.end; steps++) {
		for (e = 0; e < 2; e++) {
			struct ltp_packet packet;
			int most = 8;

			ltp_tick(ends[e], now);
			while (most-- && ltp_output(ends[e], now, &packet)) {
				uint8_t datagram[LTP_LONGEST + SEGMENT], what = byte(&input);
				size_t length = packet.header_bytes + packet.payload_bytes;
				unsigned int slot = what % HELD;

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
					continue;
				}
				uint8_t *copy = malloc(length + !length);

				memcpy(copy, datagram, length);
				bring(ends[packet.rank], copy, length, now);
				if (what >= 235)
					bring(ends[packet.rank], copy, length, now + 1);
				if (what >= 230 && lengths[slot])
					bring(ends[packet.rank], held[slot], lengths[slot], now);
				free(copy);
			}
		}
		now += 1 + 100000ULL * byte(&input);
		event = byte(&input);
		if (event == 253) /* one of them leaves */
			ltp_end(ends[steps % 2], byte(&input));
		if (event == 254) { /* somebody else's, as it is */
			size_t length = byte(&input);
			uint8_t *own = calloc(1, length + 1);

			for (i = 0; i < length; i++)
				own[i] = byte(&input);
			bring(ends[1], own, length, now);
			free(own);
		}
	}
	check(received, forged);
	(void)under_way;
	ltp_delete(ends[0]);
	ltp_delete(ends[1]);
	return 0;
}

#ifdef ALONE
/* Without libFuzzer: inputs drawn at random, until so many datagrams have come. */
int main(int argc, char **argv)
{
	static uint8_t data[4096];
	long most = argc > 1 ? atol(argv[1]) : 100000;
	unsigned int seed = 1;
	size_t i, size;

	while (brought < most) {
		size = rand_r(&seed) % sizeof(data);
		for (i = 0; i < size; i++)
			data[i] = rand_r(&seed) % 8 ? rand_r(&seed) % 230 : rand_r(&seed);
		LLVMFuzzerTestOneInput(data, size);
	}
	return 0;
}
#endif
