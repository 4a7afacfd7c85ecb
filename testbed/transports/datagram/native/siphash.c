// SPDX-License-Identifier: BSD-3-Clause
#include "siphash.h"

struct state {
	uint64_t a, b, c, d;
};

static uint64_t little(const uint8_t *at, size_t bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | at[bytes];
	return value;
}

static uint64_t turned(uint64_t value, int by)
{
	return value << by | value >> (64 - by);
}

static void rounds(struct state *s, int count)
{
	while (count--) {
		s->a += s->b;
		s->c += s->d;
		s->b = turned(s->b, 13) ^ s->a;
		s->d = turned(s->d, 16) ^ s->c;
		s->a = turned(s->a, 32);
		s->c += s->b;
		s->a += s->d;
		s->b = turned(s->b, 17) ^ s->c;
		s->d = turned(s->d, 21) ^ s->a;
		s->c = turned(s->c, 32);
	}
}

static void absorb(struct state *s, uint64_t word)
{
	s->d ^= word;
	rounds(s, 2);
	s->a ^= word;
}

void siphash(const uint8_t *key, const uint8_t *data, size_t bytes, uint8_t *mac)
{
	uint64_t low = little(key, 8), high = little(key + 8, 8), value;
	struct state s = { low ^ 0x736f6d6570736575, high ^ 0x646f72616e646f6d, low ^ 0x6c7967656e657261,
			   high ^ 0x7465646279746573 };
	size_t at, i;

	for (at = 0; at + 8 <= bytes; at += 8)
		absorb(&s, little(data + at, 8));
	absorb(&s, little(data + at, bytes - at) | (uint64_t)bytes << 56);
	s.c ^= 0xff;
	rounds(&s, 4);
	value = s.a ^ s.b ^ s.c ^ s.d;
	for (i = 0; i < SIPHASH_MAC; i++)
		mac[i] = value >> 8 * i;
}

bool siphash_agrees(const uint8_t *key, const uint8_t *data, size_t bytes, const uint8_t *mac)
{
	uint8_t ours[SIPHASH_MAC], other = 0;
	size_t i;

	siphash(key, data, bytes, ours);
	for (i = 0; i < SIPHASH_MAC; i++)
		other |= ours[i] ^ mac[i]; /* in the same time, wherever they differ */
	return !other;
}
